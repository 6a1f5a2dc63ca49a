#include "client/datapath/client_metrics.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "base/log.h"

namespace remora::detail {

namespace {

constexpr std::array<const char*, 4> kOpNames{"read", "write", "cas", "add"};

constexpr std::array<const char*, 3> kLatencyNames{"read", "write", "atomic"};

constexpr std::array<const char*, 8> kEndingNames{
    "ok",     "timed_out", "cancelled", "indeterminate", "connection_lost", "access_refused",
    "misuse", "failed"};

constexpr std::array<const char*, ClientMetrics::kSessionEnds> kSessionEndNames{
    "closed", "peer_gone", "protocol", "lane_broken", "deadline", "refused", "rail_returned"};

/// As fine as the objectives for operations need, and no finer: each bound is a series for each
/// kind and transport.
metrics::HistogramShape operation_latency() {
  constexpr std::uint64_t kMicrosecond = 1'000;
  constexpr std::uint64_t kMillisecond = 1'000'000;
  metrics::HistogramShape shape{metrics::Unit::kSeconds, {}};
  for (const unsigned steps : {1U, 2U, 5U, 10U, 20U, 50U, 100U, 200U, 500U})
    shape.bounds.push_back(steps * kMicrosecond);
  for (const unsigned steps : {1U, 5U, 10U, 100U, 1'000U, 10'000U})
    shape.bounds.push_back(steps * kMillisecond);
  return shape;
}

metrics::HistogramShape batch_sizes() { return {metrics::Unit::kCount, {1, 4, 16, 64, 256}}; }

}  // namespace

/// Registers series until one fails; then keeps that error and does nothing more. Leaves out series
/// for which the registry has no room, so that no session fails for that reason.
class ClientMetrics::Registrar {
 public:
  Registrar(metrics::Registry& registry, TransportKind transport)
      : registry_{registry}, transport_{to_string(transport)} {}
  ~Registrar() {
    if (left_out_ != 0)
      log::warn({"metrics.no_room", "transport series"},
                "{}: the registry has no room for {} of its series: raise "
                "RegistryOptions::series_max",
                transport_, left_out_);
  }
  Registrar(const Registrar&) = delete;
  Registrar& operator=(const Registrar&) = delete;

  metrics::Counter counter(std::string_view name, std::string_view help, metrics::Labels labels) {
    return keep<metrics::Counter>([&](auto all) { return registry_.counter(name, help, all); },
                                  std::move(labels));
  }
  metrics::Gauge gauge(std::string_view name, std::string_view help, metrics::HighWater mark) {
    return keep<metrics::Gauge>([&](auto all) { return registry_.gauge(name, help, all, mark); },
                                {});
  }
  metrics::Histogram histogram(std::string_view name, std::string_view help, metrics::Labels labels,
                               const metrics::HistogramShape& shape) {
    return keep<metrics::Histogram>(
        [&](auto all) { return registry_.histogram(name, help, all, shape); }, std::move(labels));
  }
  [[nodiscard]] const Status& status() const noexcept { return status_; }

 private:
  template <typename Handle, typename Register>
  Handle keep(Register&& add, metrics::Labels labels) {
    if (!status_) return {};
    labels.push_back({"transport", transport_});
    auto handle = add(labels);
    if (handle) return *handle;
    if (handle.error().code() == Code::kLimitExceeded)
      ++left_out_;
    else
      status_ = handle.error();
    return {};
  }

  metrics::Registry& registry_;
  std::string transport_;
  Status status_;
  std::size_t left_out_ = 0;
};

Result<ClientMetrics> ClientMetrics::create(std::shared_ptr<metrics::Registry> registry,
                                            TransportKind transport) {
  ClientMetrics made;
  Registrar add{*registry, transport};
  // Over shm, no lane can end before its session does.
  const bool posts = transport != TransportKind::kShm;
  made.declare_operations(add);
  made.declare_sessions(add, transport);
  if (posts) made.declare_queues(add, *registry, transport);
  if (!add.status()) return add.status().error();
  made.registry_ = std::move(registry);
  return made;
}

void ClientMetrics::declare_operations(Registrar& add) {
  for (std::size_t op = 0; op < kNames; ++op)
    for (std::size_t end = 0; end < kEndings; ++end)
      operations_[op][end] =
          add.counter("remora_client_operations_total", "Operations ended, by how they ended.",
                      {{"op", kOpNames[op]}, {"status", kEndingNames[end]}});
  std::array<metrics::Histogram, kLatencyNames.size()> latency{};
  for (std::size_t kind = 0; kind < latency.size(); ++kind)
    latency[kind] = add.histogram(
        "remora_client_operation_latency_seconds",
        "Time from submission to completion of operations that were ok; atomic: cas and add.",
        {{"op", kLatencyNames[kind]}}, operation_latency());
  for (std::size_t opcode = 0; opcode < transport::kOpcodes; ++opcode) {
    const std::size_t name = kNameOf[opcode];
    ok_[opcode].count = operations_[name][kOk];
    ok_[opcode].latency = latency[std::min(name, latency.size() - 1)];
  }
  const auto bytes_of = [&](transport::Opcode opcode) -> metrics::Counter& {
    return ok_[static_cast<std::size_t>(opcode)].bytes;
  };
  bytes_of(transport::Opcode::kRead) =
      add.counter("remora_client_read_bytes_total", "Payload of reads that were ok.", {});
  bytes_of(transport::Opcode::kWrite) = bytes_of(transport::Opcode::kWriteZeroes) =
      add.counter("remora_client_written_bytes_total", "Payload of writes that were ok.", {});
}

void ClientMetrics::declare_sessions(Registrar& add, TransportKind transport) {
  using metrics::HighWater;
  const bool posts = transport != TransportKind::kShm;
  const std::size_t ends = posts ? kRailReturned : kSessionEndsOverShm;
  lanes_ = add.gauge("remora_client_lanes", "Open lanes.", HighWater::kNone);
  lanes_broken_ = add.counter("remora_client_lanes_broken_total",
                              "Lanes that ended before they were closed.", {});
  callback_exceptions_ = add.counter("remora_client_callback_exceptions_total",
                                     "Callbacks that an exception left.", {});
  sessions_begun_ = add.counter("remora_client_sessions_total", "Sessions begun.", {});
  for (std::size_t end = 0; end < ends; ++end)
    sessions_ended_[end] =
        add.counter("remora_client_sessions_ended_total", "Sessions ended, by what ended them.",
                    {{"reason", kSessionEndNames[end]}});
  // A session that is closed is not interrupted.
  for (std::size_t by = kClosed + 1; by < (transport == TransportKind::kRdma ? kSessionEnds : ends);
       ++by)
    interrupted_[by] = add.counter("remora_client_sessions_interrupted_total",
                                   "Sessions interrupted, to connect again, by what did it.",
                                   {{"reason", kSessionEndNames[by]}});
  sessions_resumed_ =
      add.counter("remora_client_sessions_resumed_total", "Interrupted sessions that went on.", {});
  if (posts)
    reposted_ =
        add.counter("remora_client_reads_reposted_total",
                    "Reads that a broken lane took with it and the next one carried out.", {});
}

void ClientMetrics::declare_queues(Registrar& add, const metrics::Registry& registry,
                                   TransportKind transport) {
  using metrics::HighWater;
  doorbell_requests_ =
      add.histogram("remora_client_doorbell_work_requests",
                    "Work requests handed over by one doorbell.", {}, batch_sizes());
  poll_completions_ =
      add.histogram("remora_client_poll_completions",
                    "Completions found by a visit that found any.", {}, batch_sizes());
  cq_depth_ = add.gauge("remora_client_cq_depth",
                        "Completions that the latest visit found in the completion queue.",
                        HighWater::kExport);
  send_queue_occupancy_ = add.gauge(
      "remora_client_send_queue_occupancy",
      "Work requests posted and not yet completed, on the lane last used.", HighWater::kExport);
  cq_capacities_ =
      CqCapacities::of(registry, transport,
                       add.gauge("remora_client_cq_capacity",
                                 "Completion queue entries of the open lane that has the fewest.",
                                 HighWater::kNone));
  const char* const requests = "remora_client_work_requests_total";
  const char* const handed = "Work requests handed over, by whether they were signaled.";
  signaled_ = add.counter(requests, handed, {{"kind", "signaled"}});
  unsignaled_ = add.counter(requests, handed, {{"kind", "unsignaled"}});
  const char* const victims = "remora_client_lane_victims_total";
  const char* const ended =
      "Operations ended because another's deadline, or its refusal, broke their lane.";
  victims_[static_cast<std::size_t>(LaneFault::kDeadline)] =
      add.counter(victims, ended, {{"cause", "deadline"}});
  victims_[static_cast<std::size_t>(LaneFault::kRefused)] =
      add.counter(victims, ended, {{"cause", "refused"}});
  if (transport == TransportKind::kRdma)
    inline_ = add.counter("remora_client_inline_work_requests_total",
                          "Work requests whose bytes went to the device with them.", {});
}

ClientMetrics::Ending ClientMetrics::ending(const Outcome& outcome) noexcept {
  if (outcome.ok) return kOk;
  switch (outcome.code) {
    case Code::kTimedOut: return kTimedOut;
    case Code::kCancelled: return kCancelled;
    case Code::kIndeterminate: return kIndeterminate;
    case Code::kConnectionLost: return kConnectionLost;
    case Code::kAccessRefused: return kAccessRefused;
    default: return kFailed;
  }
}

void ClientMetrics::misuse(transport::Opcode opcode) const noexcept {
  recorder().add(operations_[kNameOf[static_cast<std::size_t>(opcode)]][kMisuse]);
}

void ClientMetrics::lane_opened(std::uint32_t completion_capacity) const {
  if (cq_capacities_ != nullptr) cq_capacities_->add(completion_capacity);  // may throw
  lanes_.add(1);
}

void ClientMetrics::lane_closed(std::uint32_t completion_capacity) const noexcept {
  lanes_.add(-1);
  if (cq_capacities_ != nullptr) cq_capacities_->remove(completion_capacity);
}

void ClientMetrics::lane_broken() const noexcept { recorder().add(lanes_broken_); }

void ClientMetrics::count_rail_lane(const std::string& device, int by) const noexcept {
  const auto lanes = registry_->gauge("remora_client_rail_lanes",
                                      "Open lanes of sessions with rails, by the device here.",
                                      {{"device", device}});
  if (lanes) lanes->add(by);
}

void ClientMetrics::session_began() const noexcept { recorder().add(sessions_begun_); }

void ClientMetrics::session_ended(SessionEnd end) const noexcept {
  recorder().add(sessions_ended_[end]);
}

void ClientMetrics::session_interrupted(SessionEnd by) const noexcept {
  recorder().add(interrupted_[by]);
}

void ClientMetrics::session_resumed() const noexcept { recorder().add(sessions_resumed_); }

void ClientMetrics::callback_threw() const noexcept { recorder().add(callback_exceptions_); }

}  // namespace remora::detail
