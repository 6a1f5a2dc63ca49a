#pragma once

/// The client's series. Recorded once a batch: clocks are read by the caller.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include <remora/metrics/registry.h>

#include "client/operation.h"
#include "transport/transport.h"

namespace remora::detail {

/// Series of one transport. Copyable handles; keeps the registry alive.
class ClientMetrics {
 public:
  /// Registers the series of `transport`, or finds them. Errors: as metrics::Registry.
  static Result<ClientMetrics> create(std::shared_ptr<metrics::Registry> registry,
                                      TransportKind transport);

  [[nodiscard]] metrics::Recorder recorder() const noexcept { return registry_->recorder(); }

  /// An operation that was refused before it reached a lane.
  void misuse(transport::Opcode opcode) const noexcept;
  void doorbell(std::size_t request_count, std::uint64_t in_flight) const noexcept;
  /// One visit to the completion queue that found something.
  void polled(metrics::Recorder recorder, std::size_t completion_count,
              std::uint64_t in_flight) const noexcept;
  void lane_opened(std::uint32_t completion_capacity) const noexcept;
  void lane_closed(std::uint32_t completion_capacity) const noexcept;
  void lane_broken() const noexcept;
  void callback_threw() const noexcept;

 private:
  friend class EndTally;
  /// What an operation ended as, as a label.
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
  static Ending ending(const Outcome& outcome) noexcept;

  std::shared_ptr<metrics::Registry> registry_;
  std::array<std::array<metrics::Counter, kEndings>, kNames> operations_{};
  std::array<metrics::Histogram, kNames> latency_{};
  metrics::Counter bytes_read_;
  metrics::Counter bytes_written_;
  metrics::Histogram doorbell_requests_;
  metrics::Histogram poll_completions_;
  metrics::Gauge cq_depth_;
  metrics::Gauge cq_capacity_;
  metrics::Gauge send_queue_occupancy_;
  metrics::Gauge lanes_;
  metrics::Counter lanes_broken_;
  metrics::Counter callback_exceptions_;
};

/// Counts operations that end together: those of one kind, submitted at once, are recorded at once.
/// Reads the clock once. Belongs to one thread, for the time of one visit to the lane.
class EndTally {
 public:
  explicit EndTally(const ClientMetrics& metrics) noexcept
      : metrics_{metrics}, recorder_{metrics.recorder()}, now_{Clock::now()} {}
  ~EndTally() { record(); }
  EndTally(const EndTally&) = delete;
  EndTally& operator=(const EndTally&) = delete;

  [[gnu::always_inline]] void add(const OperationRecord& operation) noexcept {
    if (!operation.outcome.ok) [[unlikely]]
      return add_failed(operation);
    if (operation.request.opcode != opcode_ || operation.submitted != submitted_) {
      record();
      opcode_ = operation.request.opcode;
      submitted_ = operation.submitted;
    }
    ++count_;
    bytes_ += operation.length_bytes;
  }
  /// `count` operations that were ok, as `first` of opcode and time of submission.
  [[gnu::always_inline]] void add_run(const OperationRecord& first, std::uint64_t count,
                                      std::uint64_t bytes) noexcept {
    if (first.request.opcode != opcode_ || first.submitted != submitted_) {
      record();
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
  void record() noexcept;

  const ClientMetrics& metrics_;
  metrics::Recorder recorder_;
  Clock::time_point now_;
  Clock::time_point submitted_{};
  std::uint64_t count_ = 0;
  std::uint64_t bytes_ = 0;
  transport::Opcode opcode_ = transport::Opcode::kRead;
};

}  // namespace remora::detail
