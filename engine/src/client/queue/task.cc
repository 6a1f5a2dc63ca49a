#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include <remora/engine/task.h>

#include "base/index_stack.h"
#include "client/queue/executor_core.h"

namespace remora::detail {

TaskWait::TaskWait() noexcept : outer_{ExecutorCore::set_current(nullptr)} {}
TaskWait::~TaskWait() { ExecutorCore::set_current(outer_); }

std::coroutine_handle<> TaskWait::ended(void* self, std::size_t /*index*/) noexcept {
  auto& waiting = *static_cast<TaskWait*>(self);
  // Notifies under the lock, since the waiting thread may destroy this object as soon as the lock
  // is free.
  const MutexLock lock{waiting.mutex_};
  waiting.ended_ = true;
  waiting.told_.notify_one();
  return std::noop_coroutine();
}

void TaskWait::wait() noexcept {
  MutexLock lock{mutex_};
  told_.wait(lock, [this] {
    mutex_.assert_held();
    return ended_;
  });
}

}  // namespace remora::detail

namespace remora {

struct Scope::Core {
  Core(std::size_t limit, std::stop_token token)
      : stop{std::move(token)},
        children(limit),
        free{static_cast<std::uint32_t>(limit)},
        room{static_cast<std::int64_t>(limit)} {}

  /// Records that a task was not started, and the reason `why`.
  void refuse(const Error& why) noexcept {
    if (!failed.exchange(true, std::memory_order_acq_rel)) first = why;
  }

  const std::stop_token stop;
  std::vector<Task<Status>> children;
  detail::IndexStack free;  ///< places of children that have ended, or have not begun
  /// Number of further tasks that may run. Negative while the owner waits: the room that is still
  /// missing.
  std::atomic<std::int64_t> room;
  std::coroutine_handle<> waiter;
  std::atomic<bool> failed{false};
  Status first;  ///< the first failure; the owner reads it after all children have ended

  /// Takes room for `count` tasks; waits until so many have ended.
  auto claim(std::int64_t count) noexcept {
    struct Awaiter {
      Core& core;
      std::int64_t count;
      [[nodiscard]] bool await_ready() const noexcept { return false; }
      bool await_suspend(std::coroutine_handle<> coroutine) const noexcept {
        core.waiter = coroutine;
        // If there is not enough room, the coroutine may be resumed at once in another thread,
        // which may destroy this object.
        const std::int64_t wanted = count;
        return core.room.fetch_sub(wanted, std::memory_order_acq_rel) < wanted;
      }
      void await_resume() const noexcept {}
    };
    return Awaiter{*this, count};
  }
  void give_back(std::int64_t count) noexcept { room.fetch_add(count, std::memory_order_acq_rel); }

  /// A child calls this at its final suspension, so its frame may be destroyed from here on.
  static std::coroutine_handle<> ended(void* self, std::size_t index) noexcept {
    Core& core = *static_cast<Core*>(self);
    const Status status = core.children[index].result();
    if (!status && !core.failed.exchange(true, std::memory_order_acq_rel)) core.first = status;
    core.free.give_back(static_cast<std::uint32_t>(index));
    // The owner is resumed when the last missing room is free. Otherwise it may have ended
    // meanwhile, and have destroyed the core.
    if (core.room.fetch_add(1, std::memory_order_acq_rel) != -1) return std::noop_coroutine();
    return core.waiter;
  }
};

Scope::Scope(std::size_t limit) : Scope{limit, std::stop_token{}} {}
Scope::Scope(std::size_t limit, std::stop_token stop)
    : core_{std::make_unique<Core>(std::max<std::size_t>(1, limit), std::move(stop))} {}
Scope::~Scope() = default;

Task<bool> Scope::spawn(Task<Status> task) {
  Core& core = *core_;
  co_await core.claim(1);
  if (core.stop.stop_requested())
    core.refuse(Error{Code::kCancelled, "spawn"}.with_subject("a stop was requested"));
  else if (!task)
    core.refuse(detail::end_of_empty_task<Status>().error());
  if (core.failed.load(std::memory_order_acquire)) {
    core.give_back(1);
    co_return false;
  }
  const std::uint32_t index = core.free.take();
  Task<Status>& child = core.children[index];
  child = std::move(task);
  child.on_end({.tell = &Core::ended, .receiver = &core, .index = index});
  child.start();
  co_return true;
}

Task<Status> Scope::join() {
  Core& core = *core_;
  const auto all = static_cast<std::int64_t>(core.children.size());
  co_await core.claim(all);
  core.give_back(all);
  co_return core.first;
}

}  // namespace remora
