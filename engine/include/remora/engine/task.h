#pragma once

/// Task, Scope and sync_wait: the minimum that coroutines over remote memory need. They start no
/// thread. A coroutine continues in the thread that resumes it: in an Executor (executor.h) the
/// thread that calls run(); elsewhere a poller or, for operations of an AsyncQueue (async.h), a
/// poller, the engine's arena, or a thread that the application chooses.
///
/// A task is lazy: it starts when it is awaited, spawned or run. Its handle owns it, and destroys
/// it. A task that waits for an operation may be destroyed, too: the operation ends by itself, in
/// the slot that it owns. But destroy a task only where it cannot be resumed meanwhile: see
/// "Destroying" in async.h.

#include <coroutine>
#include <cstddef>
#include <exception>
#include <memory>
#include <optional>
#include <stop_token>
#include <type_traits>
#include <utility>

#include <remora/mutex.h>
#include <remora/result.h>

namespace remora {

template <typename T>
class Task;

namespace detail {
class ExecutorCore;

/// The function that a task calls when it has ended; it returns the coroutine that continues.
struct TaskEnd {
  std::coroutine_handle<> (*tell)(void* receiver, std::size_t index) noexcept = nullptr;
  void* receiver = nullptr;
  std::size_t index = 0;
};

/// The final suspension of a task: continues what its TaskEnd names.
struct TellEnd {
  /// False: the end is always passed on.
  [[nodiscard]] bool await_ready() const noexcept { return false; }
  /// Returns the coroutine that continues in this thread.
  template <typename Promise>
  std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> ended) const noexcept {
    // The called function may destroy the frame at once, in another thread.
    const TaskEnd end = ended.promise().end;
    return end.tell != nullptr ? end.tell(end.receiver, end.index) : std::noop_coroutine();
  }
  /// Never called: a task that has ended is not resumed.
  void await_resume() const noexcept {}
};

/// The promise of Task<T>, in the frame of its coroutine.
template <typename T>
struct TaskPromise {
  /// The task that owns this promise's frame.
  Task<T> get_return_object() noexcept;
  /// A task begins when it is awaited or started.
  [[nodiscard]] std::suspend_always initial_suspend() const noexcept { return {}; }
  /// The frame stays until the Task is destroyed.
  [[nodiscard]] TellEnd final_suspend() const noexcept { return {}; }
  /// The library throws nothing. An exception of the application's own code cannot leave the task.
  [[noreturn]] void unhandled_exception() const noexcept { std::terminate(); }
  /// Stores the value of co_return for the task's user.
  template <typename Value>
  void return_value(Value&& value) {
    result.emplace(std::forward<Value>(value));
  }

  TaskEnd end;
  std::optional<T> result;
};

/// A thread that waits for the end of a task. No Executor drives the operations that the task
/// awaits in this thread, even if the thread is in Executor::run(): that Executor waits, too.
class TaskWait {
 public:
  /// Takes this thread from its Executor, if it has one, until the destructor.
  TaskWait() noexcept;
  ~TaskWait();
  TaskWait(const TaskWait&) = delete;
  TaskWait& operator=(const TaskWait&) = delete;

  /// The task calls this at its end. `self`: a TaskWait.
  static std::coroutine_handle<> ended(void* self, std::size_t index) noexcept;
  /// Blocks until ended() was called.
  void wait() noexcept;

 private:
  Mutex mutex_;
  Condition told_;
  bool ended_ REMORA_GUARDED_BY(mutex_) = false;
  ExecutorCore* const outer_;  ///< of this thread, or null
};

/// The result of a task that did not run: `why` if a T can be made from an Error. Otherwise there
/// is no T to return, and std::terminate() ends the program.
template <typename T>
T end_without_result([[maybe_unused]] const Error& why) noexcept {
  if constexpr (std::is_convertible_v<Error, T>)
    return Error{why};
  else
    std::terminate();
}
/// The result of a task without a coroutine: kClosed.
template <typename T>
T end_of_empty_task() noexcept {
  return end_without_result<T>(
      Error{Code::kClosed, "task"}.with_subject("this task was moved from"));
}

}  // namespace detail

/// A coroutine that ends with a T, usually a Status or a Result. Move-only; owns its frame.
///
/// A task that was made empty or moved from ends at once when it is awaited, run or spawned: with
/// kClosed if T is a Status or a Result. For any other T that is an error of the program, and
/// std::terminate() ends it.
template <typename T>
class [[nodiscard]] Task {
 public:
  using promise_type = detail::TaskPromise<T>;  // NOLINT(readability-identifier-naming)
  using Handle = std::coroutine_handle<promise_type>;

  /// An empty task.
  Task() noexcept = default;
  /// For the promise. The task owns the frame of `handle`.
  explicit Task(Handle handle) noexcept : handle_{handle} {}
  Task(Task&& other) noexcept : handle_{std::exchange(other.handle_, {})} {}
  /// Destroys the frame that this object had, as the destructor does.
  Task& operator=(Task&& other) noexcept {
    if (this == &other) return *this;
    reset();
    handle_ = std::exchange(other.handle_, {});
    return *this;
  }
  /// Destroys the frame; see the top of this file for when that is safe.
  ~Task() { reset(); }

  /// False: it was made empty or moved from.
  [[nodiscard]] explicit operator bool() const noexcept { return static_cast<bool>(handle_); }

  /// Starts the task and waits for its end; the value is moved out.
  auto operator co_await() && noexcept {
    struct Awaiter {
      Handle handle;
      [[nodiscard]] bool await_ready() const noexcept { return !handle; }
      std::coroutine_handle<> await_suspend(std::coroutine_handle<> awaiter) const noexcept {
        constexpr auto kResume = [](void* receiver, std::size_t /*index*/) noexcept {
          return std::coroutine_handle<>::from_address(receiver);
        };
        handle.promise().end = {.tell = kResume, .receiver = awaiter.address()};
        return handle;
      }
      T await_resume() const {
        if (!handle) return detail::end_of_empty_task<T>();
        return std::move(*handle.promise().result);
      }
    };
    return Awaiter{handle_};
  }

  /// Runs the task until it first waits, in this thread. Call it once.
  void start() const {
    if (handle_) handle_.resume();
  }
  /// Whether the task has ended; also true of an empty task. Only where no other thread runs it.
  [[nodiscard]] bool done() const noexcept { return !handle_ || handle_.done(); }
  /// Only when done(), and not of an empty task.
  [[nodiscard]] T& result() const noexcept { return *handle_.promise().result; }
  /// For Remora's own functions: sets the function that the task calls at its end. Call it before
  /// the task starts.
  void on_end(const detail::TaskEnd& end) const noexcept {
    if (handle_) handle_.promise().end = end;
  }

 private:
  void reset() noexcept {
    if (handle_) std::exchange(handle_, {}).destroy();
  }
  Handle handle_;
};

template <typename T>
Task<T> detail::TaskPromise<T>::get_return_object() noexcept {
  return Task<T>{std::coroutine_handle<TaskPromise>::from_promise(*this)};
}

/// Runs `task`, the task of a coroutine, in this thread until it first waits, and then in the
/// threads that resume it; returns its value. Blocks until its end: do not call it in a callback,
/// nor in a coroutine on a poller or the arena. In a task of an Executor it blocks all tasks of
/// that Executor.
template <typename T>
T sync_wait(Task<T> task) {
  if (!task) return detail::end_of_empty_task<T>();
  detail::TaskWait waiting;
  task.on_end({.tell = &detail::TaskWait::ended, .receiver = &waiting});
  task.start();
  waiting.wait();
  return std::move(task.result());
}

/// Runs a bounded number of tasks at the same time. After the first one that fails it starts no
/// further task. Belongs to one coroutine, which joins it before it ends. If the Scope is destroyed
/// earlier, with the coroutine, it destroys the tasks that still run.
///
/// The tasks may continue and end in different threads at the same time, lock-free. The coroutine
/// that waits for a task continues in the thread in which the task has ended. So always join such a
/// Scope: destroy it early only if none of its tasks can run meanwhile.
class Scope {
 public:
  /// `limit`: tasks that run at once, at least 1.
  explicit Scope(std::size_t limit);
  /// The same, and no task is started after a stop was requested of `stop`. Give the same token to
  /// the operations that the tasks await (AsyncRegion::with_stop(), AsyncControl::with_stop()), so
  /// that running tasks end soon. Join the Scope all the same: until then the tasks use their
  /// buffers.
  Scope(std::size_t limit, std::stop_token stop);
  /// Destroys the tasks that still run.
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

  /// Waits for room, then starts `task`, which runs on beside the caller. False: `task` was not
  /// started, since another one has failed or a stop was requested. Allocates.
  Task<bool> spawn(Task<Status> task);
  /// Waits until all tasks have ended. Returns ok, or the first failure; that is kCancelled if a
  /// stop prevented a task from starting before any had failed.
  Task<Status> join();

 private:
  struct Core;
  std::unique_ptr<Core> core_;
};

}  // namespace remora
