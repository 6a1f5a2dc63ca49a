#pragma once

#include <cstdint>

#include <remora/metrics/registry.h>

#include "base/clock.h"
#include "client/datapath/client_metrics.h"
#include "client/datapath/operation_record.h"
#include "transport/work_request.h"

namespace remora::detail {

/// Counts the operations that end in one visit to a lane. Operations of one kind that were
/// submitted together are recorded together. Reads the clock once. Belongs to the visiting thread.
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
  /// Counts `count` successful operations with the opcode and the submission time of `first`.
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
