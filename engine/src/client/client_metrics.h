#pragma once

/// The client's series. Recorded once a batch: clocks are read by the caller.

#include <algorithm>
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
  [[nodiscard]] metrics::OwnedCells own_cells() const noexcept { return registry_->own_cells(); }
  void doorbell(metrics::Recorder recorder, std::size_t request_count,
                std::uint64_t in_flight) const noexcept {
    recorder.observe(doorbell_requests_, request_count);
    send_queue_occupancy_.set(static_cast<std::int64_t>(in_flight));
  }
  /// One visit to the completion queue that found something.
  void polled(metrics::Recorder recorder, std::size_t completion_count,
              std::uint64_t in_flight) const noexcept {
    recorder.observe(poll_completions_, completion_count);
    cq_depth_.set(static_cast<std::int64_t>(completion_count));
    // The mark is all lanes': what others have lowered since may be a new highest.
    if (in_flight == 0)
      send_queue_occupancy_.lower(0);
    else
      send_queue_occupancy_.set(static_cast<std::int64_t>(in_flight));
  }
  /// `count` operations that were ok, and their `bytes`.
  [[gnu::always_inline]] void ended(metrics::Recorder recorder, transport::Opcode opcode,
                                    Clock::duration latency, std::uint64_t count,
                                    std::uint64_t bytes) const noexcept {
    const std::size_t name = kNameOf[static_cast<std::size_t>(opcode)];
    recorder.add(operations_[name][kOk], count);
    recorder.observe_n(latency_[name],
                       static_cast<std::uint64_t>(std::max<std::int64_t>(0, latency.count())),
                       count);
    recorder.add(bytes_[static_cast<std::size_t>(opcode)], bytes);
  }
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
  /// Under which name an operation is counted.
  static constexpr std::array<std::uint8_t, transport::kOpcodes> kNameOf{0, 1, 2, 3, 1, 1, 0};
  static Ending ending(const Outcome& outcome) noexcept;

  std::shared_ptr<metrics::Registry> registry_;
  std::array<std::array<metrics::Counter, kEndings>, kNames> operations_{};
  std::array<metrics::Histogram, kNames> latency_{};
  std::array<metrics::Counter, transport::kOpcodes>
      bytes_{};  ///< nowhere, for those that move none
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
      : EndTally{metrics, metrics.recorder()} {}
  EndTally(const ClientMetrics& metrics, metrics::Recorder recorder) noexcept
      : metrics_{metrics}, recorder_{recorder}, now_{clock_now()} {}
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
  /// `count` operations that were ok, as `first` of opcode and time of submission.
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
