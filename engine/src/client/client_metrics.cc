#include "client/client_metrics.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

namespace remora::detail {

namespace {

constexpr std::array<const char*, 4> kOpNames{"read", "write", "cas", "add"};

constexpr std::array<const char*, 8> kEndingNames{
    "ok",     "timed_out", "cancelled", "indeterminate", "connection_lost", "access_refused",
    "misuse", "failed"};

/// Registers series until one fails; then keeps that error and does nothing more.
class Registrar {
 public:
  Registrar(metrics::Registry& registry, TransportKind transport)
      : registry_{registry}, transport_{to_string(transport)} {}

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
    status_ = handle.error();
    return {};
  }

  metrics::Registry& registry_;
  std::string transport_;
  Status status_;
};

}  // namespace

Result<ClientMetrics> ClientMetrics::create(std::shared_ptr<metrics::Registry> registry,
                                            TransportKind transport) {
  using metrics::HighWater;
  using metrics::HistogramShape;
  ClientMetrics made;
  Registrar add{*registry, transport};
  for (std::size_t op = 0; op < kNames; ++op) {
    for (std::size_t end = 0; end < kEndings; ++end)
      made.operations_[op][end] =
          add.counter("remora_client_operations_total", "Operations ended, by how they ended.",
                      {{"op", kOpNames[op]}, {"status", kEndingNames[end]}});
    made.latency_[op] =
        add.histogram("remora_client_operation_latency_seconds",
                      "Time from submission to completion of operations that were ok.",
                      {{"op", kOpNames[op]}}, HistogramShape::latency());
  }
  const auto bytes_of = [&](transport::Opcode opcode) -> metrics::Counter& {
    return made.bytes_[static_cast<std::size_t>(opcode)];
  };
  bytes_of(transport::Opcode::kRead) =
      add.counter("remora_client_read_bytes_total", "Payload of reads that were ok.", {});
  bytes_of(transport::Opcode::kWrite) = bytes_of(transport::Opcode::kWriteZeroes) =
      add.counter("remora_client_written_bytes_total", "Payload of writes that were ok.", {});
  made.doorbell_requests_ =
      add.histogram("remora_client_doorbell_work_requests",
                    "Work requests handed over by one doorbell.", {}, HistogramShape::counts(512));
  made.poll_completions_ = add.histogram("remora_client_poll_completions",
                                         "Completions found by a visit that found any.", {},
                                         HistogramShape::counts(512));
  made.cq_depth_ = add.gauge("remora_client_cq_depth",
                             "Completions that the latest visit found in the completion queue.",
                             HighWater::kExport);
  made.cq_capacity_ = add.gauge("remora_client_cq_capacity",
                                "Completion queue entries of all open lanes.", HighWater::kNone);
  made.send_queue_occupancy_ = add.gauge(
      "remora_client_send_queue_occupancy",
      "Work requests posted and not yet completed, on the lane last used.", HighWater::kExport);
  made.lanes_ = add.gauge("remora_client_lanes", "Open lanes.", HighWater::kNone);
  made.lanes_broken_ = add.counter("remora_client_lanes_broken_total",
                                   "Lanes that ended before they were closed.", {});
  made.callback_exceptions_ = add.counter("remora_client_callback_exceptions_total",
                                          "Callbacks that an exception left.", {});
  if (!add.status()) return add.status().error();
  made.registry_ = std::move(registry);
  return made;
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

void EndTally::add_failed(const OperationRecord& operation) noexcept {
  const auto op = ClientMetrics::kNameOf[static_cast<std::size_t>(operation.request.opcode)];
  recorder_.add(metrics_.operations_[op][ClientMetrics::ending(operation.outcome)]);
}

void ClientMetrics::misuse(transport::Opcode opcode) const noexcept {
  recorder().add(operations_[kNameOf[static_cast<std::size_t>(opcode)]][kMisuse]);
}

void ClientMetrics::lane_opened(std::uint32_t completion_capacity) const noexcept {
  lanes_.add(1);
  cq_capacity_.add(completion_capacity);
}

void ClientMetrics::lane_closed(std::uint32_t completion_capacity) const noexcept {
  lanes_.add(-1);
  cq_capacity_.add(-static_cast<std::int64_t>(completion_capacity));
}

void ClientMetrics::lane_broken() const noexcept { recorder().add(lanes_broken_); }

void ClientMetrics::callback_threw() const noexcept { recorder().add(callback_exceptions_); }

}  // namespace remora::detail
