#pragma once

/// The state of an Executor: a queue for each region in use, and the ended operations whose
/// coroutines have not been resumed yet.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <poll.h>
#include <vector>

#include <remora/engine/executor.h>
#include <remora/owned.h>
#include <remora/result.h>

#include "client/queue/coroutine_inbox.h"
#include "client/queue/executor_queue.h"
#include "client/queue/resumable_list.h"

namespace remora::detail {

/// Owned by an Executor. Used only by the thread that calls run(), except drive().
class ExecutorCore {
 public:
  explicit ExecutorCore(std::size_t depth) noexcept : depth_{depth} {}

  /// The ExecutorCore whose run() this thread is in, or null. It is a property of the thread and
  /// not of the awaiting coroutine, whose type may be the application's own: see decisions.md.
  [[nodiscard]] static ExecutorCore* current() noexcept;
  /// Makes `core` the current one of this thread; returns the one before.
  static ExecutorCore* set_current(ExecutorCore* core) noexcept;

  /// The queue of a region. Errors: as Region::queue, kOutOfMemory.
  Result<ExecutorQueue*> queue_of(const std::shared_ptr<RegionGrant>& region) noexcept;
  /// The inbox to which another thread posts the results that a task of this executor awaits: of a
  /// control call, or of an operation of an AsyncQueue. Errors: kSystem (no descriptor),
  /// kOutOfMemory.
  Result<std::shared_ptr<CoroutineInbox>> inbox() noexcept;

  /// See Executor::run(). Errors: kBusy (it runs a task already).
  Status drive(bool (*ended)(void*) noexcept, void* task, void (*start)(void*)) noexcept;
  /// Whether a thread is in drive(). Any thread.
  [[nodiscard]] bool running() const noexcept { return running_.load(std::memory_order_acquire); }
  [[nodiscard]] std::size_t depth() const noexcept { return depth_; }

 private:
  void end_all_in_child() noexcept;
  void reserve_waits(std::size_t queues);
  bool poll() noexcept;
  void wait_for_any() noexcept;
  void wait_until_ready() noexcept;
  void resume_what_is_left(std::uint32_t process) noexcept;
  [[nodiscard]] bool any_in_flight() const noexcept;

  const std::size_t depth_;
  std::atomic<bool> running_{false};
  std::shared_ptr<CoroutineInbox> inbox_;  ///< made by the first call of inbox()
  std::uint32_t process_ = made_here();
  ResumableList ready_;
  std::vector<std::unique_ptr<ExecutorQueue>> queues_;
  /// Of wait_for_any(); reserve_waits() makes the room.
  std::vector<ExecutorQueue*> busy_;
  std::vector<pollfd> events_;
};

}  // namespace remora::detail
