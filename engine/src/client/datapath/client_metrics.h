#pragma once

/// The client's metrics. They are recorded once for each batch, and the caller reads the clock.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <string>

#include <remora/metrics/registry.h>
#include <remora/mutex.h>

#include "client/datapath/operation.h"
#include "transport/work_request.h"

namespace remora::detail {

/// How an operation broke a lane, for the outcomes of other operations on the lane.
enum class LaneFault : std::uint8_t {
  kNone,      ///< no operation did: the connection ended, or the lane was closed
  kDeadline,  ///< its deadline passed, and it was posted
  kRefused,   ///< the device of the client or the server refused it
  kCount
};

/// The capacities of the open lanes' completion queues. The metric shows the smallest: compare the
/// completions that one visit finds with it. One object for each transport of a registry, shared by
/// all engines of the registry. Thread-safe.
class CqCapacities {
 public:
  static std::shared_ptr<CqCapacities> of(const metrics::Registry& registry,
                                          TransportKind transport, metrics::Gauge smallest);
  explicit CqCapacities(metrics::Gauge smallest) noexcept : smallest_{smallest} {}
  void add(std::uint32_t capacity);
  void remove(std::uint32_t capacity) noexcept;

 private:
  metrics::Gauge smallest_;
  Mutex mutex_;
  std::multiset<std::uint32_t> all_ REMORA_GUARDED_BY(mutex_);
};

/// The metrics of one transport. Copyable handles, which keep the registry alive.
class ClientMetrics {
 public:
  /// Registers the metrics of `transport`, or finds them. A metric that the registry has no room
  /// for is left out, and the log says so. Errors: as metrics::Registry, except kLimitExceeded.
  static Result<ClientMetrics> create(std::shared_ptr<metrics::Registry> registry,
                                      TransportKind transport);

  [[nodiscard]] metrics::Recorder recorder() const noexcept { return registry_->recorder(); }

  /// An operation that was refused before it reached a lane.
  void misuse(transport::Opcode opcode) const noexcept;
  [[nodiscard]] metrics::OwnedCells own_cells() const noexcept { return registry_->own_cells(); }
  /// One request, which is signaled, on a queue that was empty.
  void doorbell_of_one(metrics::Recorder recorder) const noexcept {
    recorder.observe(doorbell_requests_, 1);
    recorder.add(signaled_);
    send_queue_occupancy_.set(1);
  }
  /// `signaled_count`: how many of the requests are signaled.
  void doorbell(metrics::Recorder recorder, std::size_t request_count, std::size_t signaled_count,
                std::uint64_t in_flight) const noexcept {
    recorder.observe(doorbell_requests_, request_count);
    recorder.add(signaled_, signaled_count);
    recorder.add(unsignaled_, request_count - signaled_count);
    send_queue_occupancy_.set(static_cast<std::int64_t>(in_flight));
  }
  /// One visit to the completion queue that found completions.
  void polled(metrics::Recorder recorder, std::size_t completion_count,
              std::uint64_t in_flight) const noexcept {
    recorder.observe(poll_completions_, completion_count);
    cq_depth_.set(static_cast<std::int64_t>(completion_count));
    // All lanes share the high-water mark: after lower() by another lane this may be a new highest.
    if (in_flight == 0)
      send_queue_occupancy_.lower(0);
    else
      send_queue_occupancy_.set(static_cast<std::int64_t>(in_flight));
  }
  /// `count` operations that were ok, and their `bytes`.
  [[gnu::always_inline]] void ended(metrics::Recorder recorder, transport::Opcode opcode,
                                    Clock::duration latency, std::uint64_t count,
                                    std::uint64_t bytes) const noexcept {
    const Ok& of = ok_[static_cast<std::size_t>(opcode)];
    recorder.add(of.count, count);
    recorder.observe_n(
        of.latency, static_cast<std::uint64_t>(std::max<std::int64_t>(0, latency.count())), count);
    recorder.add(of.bytes, bytes);
  }
  void lane_opened(std::uint32_t completion_capacity) const;
  void lane_closed(std::uint32_t completion_capacity) const noexcept;
  void lane_broken() const noexcept;
  /// A lane of a session with rails has come to the device here, or leaves it.
  void rail_lane_opened(const std::string& device) const noexcept { count_rail_lane(device, 1); }
  void rail_lane_closed(const std::string& device) const noexcept { count_rail_lane(device, -1); }
  /// An operation that ended since another operation broke the lane by `fault`.
  void victim(metrics::Recorder recorder, LaneFault fault) const noexcept {
    recorder.add(victims_[static_cast<std::size_t>(fault)]);
  }
  /// A read that the next lane posts again.
  void reposted(metrics::Recorder recorder) const noexcept { recorder.add(reposted_); }
  /// The counter in which a lane counts its inline requests.
  [[nodiscard]] metrics::Counter inline_requests() const noexcept { return inline_; }
  void callback_threw() const noexcept;

  /// The cause of a session's end, as a label.
  enum SessionEnd : std::size_t {
    kClosed,
    kPeerGone,
    kProtocol,
    kSessionEndsOverShm,
    kLaneBroken = kSessionEndsOverShm,
    kDeadline,
    kRefused,
    kRailReturned,  ///< interrupted on purpose: a rail that failed has come back
    kSessionEnds
  };
  void session_began() const noexcept;
  /// The lanes or the control channel are gone; another connection may follow.
  void session_interrupted(SessionEnd by) const noexcept;
  void session_resumed() const noexcept;
  void session_ended(SessionEnd end) const noexcept;

 private:
  friend class EndTally;
  /// The outcome of an operation, as a label.
  enum Ending : std::size_t {
    kOk,
    kTimedOut,
    kCancelled,
    kIndeterminate,
    kConnectionLost,
    kAccessRefused,
    kMisuse,
    kFailed,
    kEndings
  };
  static constexpr std::size_t kNames = 4;  ///< of operations
  /// The index of the name under which an operation is counted.
  static constexpr std::array<std::uint8_t, transport::kOpcodes> kNameOf{0, 1, 2, 3, 1, 1, 0};
  /// The metrics of a successful operation; `bytes` is empty where the operation moves none.
  struct Ok {
    metrics::Counter count;
    metrics::Histogram latency;
    metrics::Counter bytes;
  };
  static Ending ending(const Outcome& outcome) noexcept;
  void count_rail_lane(const std::string& device, int by) const noexcept;
  class Registrar;
  void declare_operations(Registrar& add);
  void declare_sessions(Registrar& add, TransportKind transport);
  void declare_queues(Registrar& add, const metrics::Registry& registry, TransportKind transport);

  std::shared_ptr<metrics::Registry> registry_;
  std::array<std::array<metrics::Counter, kEndings>, kNames> operations_{};
  std::array<Ok, transport::kOpcodes> ok_{};
  metrics::Histogram doorbell_requests_;
  metrics::Histogram poll_completions_;
  metrics::Gauge cq_depth_;
  std::shared_ptr<CqCapacities> cq_capacities_;  ///< null for transports without requests
  metrics::Gauge send_queue_occupancy_;
  metrics::Gauge lanes_;
  metrics::Counter lanes_broken_;
  metrics::Counter signaled_;
  metrics::Counter unsignaled_;
  metrics::Counter inline_;
  std::array<metrics::Counter, static_cast<std::size_t>(LaneFault::kCount)> victims_{};
  metrics::Counter reposted_;
  metrics::Counter sessions_begun_;
  metrics::Counter sessions_resumed_;
  std::array<metrics::Counter, kSessionEnds> interrupted_{};
  std::array<metrics::Counter, kSessionEnds> sessions_ended_{};
  metrics::Counter callback_exceptions_;
};

/// The time for a latency: the clock is not read where metrics are not recorded.
[[nodiscard]] inline Clock::time_point latency_now() noexcept {
  return metrics::kRecorded ? clock_now() : Clock::time_point{};
}

/// Counts operations that end together: operations of one kind that were submitted together are
/// recorded together. Reads the clock once. One thread uses it, during one visit to the lane.
class EndTally {
 public:
  explicit EndTally(const ClientMetrics& metrics) noexcept
      : EndTally{metrics, metrics.recorder()} {}
  EndTally(const ClientMetrics& metrics, metrics::Recorder recorder) noexcept
      : metrics_{metrics}, recorder_{recorder}, now_{latency_now()} {}
  ~EndTally() {
    if (count_ != 0) record();
  }
  EndTally(const EndTally&) = delete;
  EndTally& operator=(const EndTally&) = delete;

  [[gnu::always_inline]] void add(const OperationRecord& operation) noexcept {
    if (!operation.outcome.ok) [[unlikely]]
      return add_failed(operation);
    if (operation.request.opcode != opcode_ || operation.submitted != submitted_) {
      if (count_ != 0) record();
      opcode_ = operation.request.opcode;
      submitted_ = operation.submitted;
    }
    ++count_;
    bytes_ += operation.length_bytes;
  }
  /// `count` successful operations, with the opcode and the time of submission of `first`.
  [[gnu::always_inline]] void add_run(const OperationRecord& first, std::uint64_t count,
                                      std::uint64_t bytes) noexcept {
    if (first.request.opcode != opcode_ || first.submitted != submitted_) {
      if (count_ != 0) record();
      opcode_ = first.request.opcode;
      submitted_ = first.submitted;
    }
    count_ += count;
    bytes_ += bytes;
  }
  [[nodiscard]] Clock::time_point now() const noexcept { return now_; }
  [[nodiscard]] metrics::Recorder recorder() const noexcept { return recorder_; }

 private:
  void add_failed(const OperationRecord& operation) noexcept;
  [[gnu::always_inline]] void record() noexcept {
    metrics_.ended(recorder_, opcode_, now_ - submitted_, count_, bytes_);
    count_ = bytes_ = 0;
  }

  const ClientMetrics& metrics_;
  metrics::Recorder recorder_;
  Clock::time_point now_;
  Clock::time_point submitted_{};
  std::uint64_t count_ = 0;
  std::uint64_t bytes_ = 0;
  transport::Opcode opcode_ = transport::Opcode::kRead;
};

}  // namespace remora::detail
