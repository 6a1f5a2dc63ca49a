#pragma once

#include <cstddef>
#include <memory>

#include <remora/engine/queue.h>
#include <remora/owned.h>
#include <remora/result.h>

#include "client/queue/async_core.h"
#include "client/queue/coroutine_inbox.h"
#include "client/queue/queue_core.h"
#include "client/queue/resumable_list.h"

namespace remora::detail {

/// The operations that the tasks of one Executor await on one region. The Executor owns it. Used
/// only by the thread that calls run().
class ExecutorQueue final : public AsyncCore {
 public:
  /// Appends operations that have ended to `ready`. Errors: as Region::queue.
  static Result<std::unique_ptr<ExecutorQueue>> create(const std::shared_ptr<RegionGrant>& region,
                                                       std::size_t depth, ResumableList& ready);
  ExecutorQueue(const std::shared_ptr<RegionGrant>& region, std::unique_ptr<QueueCore> queue,
                std::size_t depth, ResumableList& ready);
  /// Only when no operation is in flight, or waits in line.
  ~ExecutorQueue() override;

  [[nodiscard]] bool is_for(const std::shared_ptr<RegionGrant>& region) const noexcept {
    return region_.pointer() == region;
  }
  /// Whether operations are in flight. False in a child of fork(2), which cannot use its parent's
  /// queue.
  [[nodiscard]] bool busy() const noexcept { return queue_ != nullptr && queue_->busy(); }
  /// Submits the operations that were awaited, and takes those that have ended.
  void submit_and_poll() noexcept;
  /// Only while busy():
  void wait_for_one() noexcept { take_completions(queue_->wait(1)); }
  void progress() noexcept { take_completions(queue_->progress()); }
  [[nodiscard]] QueueCore& queue() const noexcept { return *queue_; }

  /// In a child of fork(2): ends all operations, since they belong to the parent.
  void end_all_in_child() noexcept;

 protected:
  Status submit(AsyncRecord& record, Deadline until) noexcept override;
  void hand_over(AsyncRecord& record) noexcept override { ready_.append(record); }
  /// submit_and_poll() serves the line, since a resumed coroutine may stop the operations in it.
  void serve_line() noexcept override {}

 private:
  void take_completions(Completions found) noexcept;

  OwnedShared<RegionGrant> region_;
  OwnedUnique<QueueCore> queue_;
  ResumableList& ready_;
};

}  // namespace remora::detail
