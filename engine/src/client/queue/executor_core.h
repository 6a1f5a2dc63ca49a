#pragma once

/// What an Executor is made of: a queue for each region in use, and the coroutines that may go on.

#include <coroutine>
#include <cstddef>
#include <deque>
#include <memory>
#include <vector>

#include <remora/engine/executor.h>
#include <remora/engine/queue.h>
#include <remora/owned.h>

#include "client/queue/queue_core.h"
#include "client/queue/resumption_inbox.h"

namespace remora::detail {

class ExecutorCore {
 public:
  explicit ExecutorCore(std::size_t depth) noexcept : depth_{depth} {}

  /// The one whose run() is in this thread, or null.
  static ExecutorCore* current() noexcept;

  /// Takes `operation` now or when there is room. Errors: as Region::queue.
  Status take(AsyncOperation& operation);
  /// Its coroutine is gone; what is in flight ends by itself.
  void forget(AsyncOperation& operation) noexcept;

  /// A control call of a task in this thread has been awaited: where its end is to be posted. Null:
  /// there is no descriptor.
  std::shared_ptr<ResumptionInbox> control_begins();
  /// Its end was told, or its coroutine is gone.
  void control_ends() noexcept { --controls_; }

  void drive(bool (*ended)(void*) noexcept, void* task, void (*start)(void*));
  [[nodiscard]] std::size_t depth() const noexcept { return depth_; }

 private:
  /// A region in use.
  struct Lane {
    OwnedShared<RegionGrant> region;
    OwnedUnique<QueueCore> queue;
    std::deque<AsyncOperation*> waiting;     ///< for room
    std::vector<AsyncOperation*> in_flight;  ///< by tag; null: forgotten
    std::vector<std::uint32_t> free;         ///< tags
  };
  /// Enters the executor of this thread, and leaves it.
  class Entered;

  Result<Lane*> lane_of(const std::shared_ptr<RegionGrant>& region);
  void end_forked();
  void fill(Lane& lane);
  void take_completions(Lane& lane, Completions found);
  bool poll();
  void wait_for_any();

  std::size_t depth_;
  std::shared_ptr<ResumptionInbox> inbox_;  ///< of control calls; made by the first one
  std::size_t controls_ = 0;                ///< control calls that are awaited
  std::uint32_t process_ = made_here();
  std::deque<std::coroutine_handle<>> ready_;
  std::vector<std::unique_ptr<Lane>> lanes_;
};

}  // namespace remora::detail
