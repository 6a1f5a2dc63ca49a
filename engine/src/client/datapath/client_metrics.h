#pragma once

/// The client's metrics. The data path records them once for each batch, and passes the time.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include <remora/metrics/registry.h>

#include "client/datapath/cq_capacities.h"
#include "client/datapath/operation_record.h"
#include "transport/work_request.h"

namespace remora::detail {

/// How an operation broke its lane: the cause for which other operations on the lane ended.
enum class LaneFault : std::uint8_t {
  kNone,      ///< no operation broke the lane: the connection ended, or the lane was closed
  kDeadline,  ///< the operation was posted, and its deadline passed
  kRefused,   ///< the device of the client or of the server refused the operation
  kCount
};

/// The metrics of one transport: handles, which may be copied and keep the registry alive. Each
/// session and driver has a copy. Thread-safe.
class ClientMetrics {
 public:
  /// Registers the metrics of `transport`, or finds them if they exist. If the registry has no room
  /// for a metric, the metric is left out, and a log line says so. Errors: as metrics::Registry,
  /// except kLimitExceeded.
  static Result<ClientMetrics> create(std::shared_ptr<metrics::Registry> registry,
                                      TransportKind transport);

  [[nodiscard]] metrics::Recorder recorder() const noexcept { return registry_->recorder(); }

  /// Counts an operation that was refused before it reached a lane.
  void misuse(transport::Opcode opcode) const noexcept;
  [[nodiscard]] metrics::OwnedCells own_cells() const noexcept { return registry_->own_cells(); }
  /// Counts one signaled request, posted on an empty queue.
  void doorbell_of_one(metrics::Recorder recorder) const noexcept {
    recorder.observe(doorbell_requests_, 1);
    recorder.add(signaled_);
    send_queue_occupancy_.set(1);
  }
  /// Counts the requests of one doorbell, `signaled_count` of them signaled.
  void doorbell(metrics::Recorder recorder, std::size_t request_count, std::size_t signaled_count,
                std::uint64_t in_flight) const noexcept {
    recorder.observe(doorbell_requests_, request_count);
    recorder.add(signaled_, signaled_count);
    recorder.add(unsignaled_, request_count - signaled_count);
    send_queue_occupancy_.set(static_cast<std::int64_t>(in_flight));
  }
  /// Counts one visit to the completion queue that found completions.
  void polled(metrics::Recorder recorder, std::size_t completion_count,
              std::uint64_t in_flight) const noexcept {
    recorder.observe(poll_completions_, completion_count);
    cq_depth_.set(static_cast<std::int64_t>(completion_count));
    // All lanes share the high-water mark: after lower() by another lane, this value may be a new
    // maximum.
    if (in_flight == 0)
      send_queue_occupancy_.lower(0);
    else
      send_queue_occupancy_.set(static_cast<std::int64_t>(in_flight));
  }
  /// Counts `count` successful operations and their `bytes`.
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
  /// Counts a lane, of a session with rails, that uses `device` of this machine from now on, or no
  /// longer.
  void rail_lane_opened(const std::string& device) const noexcept { count_rail_lane(device, 1); }
  void rail_lane_closed(const std::string& device) const noexcept { count_rail_lane(device, -1); }
  /// Counts an operation that ended because another operation broke the lane by `fault`.
  void victim(metrics::Recorder recorder, LaneFault fault) const noexcept {
    recorder.add(victims_[static_cast<std::size_t>(fault)]);
  }
  /// Counts a read that the next lane posts again.
  void reposted(metrics::Recorder recorder) const noexcept { recorder.add(reposted_); }
  /// The counter to which a lane adds its inline requests.
  [[nodiscard]] metrics::Counter inline_requests() const noexcept { return inline_; }
  void callback_threw() const noexcept;

  /// The cause that ended or interrupted a session, as a label.
  enum SessionEnd : std::size_t {
    kClosed,
    kPeerGone,
    kProtocol,
    kSessionEndsOverShm,
    kLaneBroken = kSessionEndsOverShm,
    kDeadline,
    kRefused,
    kRailReturned,  ///< the client interrupted the session, since a failed rail works again
    kSessionEnds
  };
  void session_began() const noexcept;
  /// The session has lost its lanes or its control channel; it may be resumed.
  void session_interrupted(SessionEnd by) const noexcept;
  void session_resumed() const noexcept;
  void session_ended(SessionEnd end) const noexcept;

 private:
  friend class EndTally;
  /// How an operation ended, as a label.
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
  static constexpr std::size_t kNames = 4;  ///< number of operation names
  /// The index of the name under which an operation is counted.
  static constexpr std::array<std::uint8_t, transport::kOpcodes> kNameOf{0, 1, 2, 3, 1, 1, 0};
  /// The metrics of successful operations; `bytes` is empty if the operation moves no bytes.
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

/// The time, to compute a latency. Does not read the clock if metrics are not recorded.
[[nodiscard]] inline Clock::time_point latency_now() noexcept {
  return metrics::kRecorded ? clock_now() : Clock::time_point{};
}

}  // namespace remora::detail
