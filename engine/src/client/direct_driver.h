#pragma once

/// Drives remote memory that is mapped into this process: an operation is a copy or a CPU atomic in
/// the thread that submits it. There is nothing to share between threads, so there is no lock. Who
/// hands on that an operation has completed synchronises by that, as with any memory.

#include <memory>

#include "client/client_metrics.h"
#include "client/lane_driver.h"

namespace remora::detail {

class DirectDriver final : public LaneDriver {
 public:
  DirectDriver(transport::DirectPath path, ClientMetrics metrics, BrokenHandler on_broken);
  ~DirectDriver() override;

  /// Done on return; long copies look at the deadline, and at the server, every few MiB.
  void submit(OperationRecord* first) noexcept override;
  void wait(CompletionSink& sink, std::size_t at_least,
            DeadlineSource earliest_deadline) noexcept override;
  void progress_and_arm(CompletionSink& sink, DeadlineSource earliest_deadline) noexcept override;
  bool cancel(OperationRecord& operation) noexcept override;
  void fail(Reason reason) noexcept override;

 private:
  void run(OperationRecord& operation) noexcept;
  void copy(OperationRecord& operation) noexcept;
  void copy_in_steps(OperationRecord& operation) noexcept;
  [[nodiscard]] bool usable() noexcept;

  transport::DirectPath path_;
  ClientMetrics metrics_;
  BrokenHandler on_broken_;
  std::atomic<Reason> broken_reason_{Reason::kNone};
};

}  // namespace remora::detail
