#pragma once

/// Task, Scope and sync_wait: the least that coroutines over remote memory need. They know nothing
/// of threads: a coroutine goes on wherever that is resumed which it waits for. In an Executor
/// (executor.h) that is the thread that calls run(); for operations of an AsyncQueue (async.h) a
/// poller, the engine's arena, or where the application says.
///
/// A task is lazy: it starts when it is awaited, spawned or run, and is destroyed with its handle.
/// One that waits for an operation may be destroyed too: the operation ends by itself, in the slot
/// that it owns. But only where the task cannot be resumed meanwhile: see "Destroying" in async.h.

#include <condition_variable>
#include <coroutine>
#include <cstddef>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <type_traits>
#include <utility>

#include <remora/result.h>

namespace remora {

template <typename T>
class Task;

namespace detail {

/// Is told of a task's end, and answers which coroutine goes on.
struct TaskEnd {
  std::coroutine_handle<> (*tell)(void* whom, std::size_t index) noexcept = nullptr;
  void* whom = nullptr;
  std::size_t index = 0;
};

struct TellEnd {
  [[nodiscard]] bool await_ready() const noexcept { return false; }
  template <typename Promise>
  std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> ended) const noexcept {
    // The receiver may destroy the frame at once, in another thread.
    const TaskEnd end = ended.promise().end;
    return end.tell != nullptr ? end.tell(end.whom, end.index) : std::noop_coroutine();
  }
  void await_resume() const noexcept {}
};

template <typename T>
struct TaskPromise {
  Task<T> get_return_object() noexcept;
  [[nodiscard]] std::suspend_always initial_suspend() const noexcept { return {}; }
  [[nodiscard]] TellEnd final_suspend() const noexcept { return {}; }
  /// The library throws nothing; what the application's own code throws here has no way out.
  [[noreturn]] void unhandled_exception() const noexcept { std::terminate(); }
  template <typename Value>
  void return_value(Value&& value) {
    result.emplace(std::forward<Value>(value));
  }

  TaskEnd end;
  std::optional<T> result;
};

/// A thread that waits for the end of a task.
class TaskWait {
 public:
  /// The task tells it. `self`: a TaskWait.
  static std::coroutine_handle<> ended(void* self, std::size_t index) noexcept;
  void wait() noexcept;

 private:
  std::mutex mutex_;
  std::condition_variable told_;
  bool ended_ = false;
};

/// The result of a task without a coroutine: kClosed where a T can be made of an Error. There is
/// no other T to return: then the program ends by std::terminate.
template <typename T>
T end_of_empty_task() noexcept {
  if constexpr (std::is_convertible_v<Error, T>)
    return Error{Code::kClosed, "task"}.with_subject("this task was moved from");
  else
    std::terminate();
}

}  // namespace detail

/// A coroutine that ends with a T, usually a Status or a Result. Move-only; owns its frame.
///
/// One that was made empty or moved from ends at once, wherever it is awaited, run or spawned: with
/// kClosed where T is a Status or a Result. For another T it is a fault of the program, which ends
/// by std::terminate.
template <typename T>
class [[nodiscard]] Task {
 public:
  using promise_type = detail::TaskPromise<T>;  // NOLINT(readability-identifier-naming)
  using Handle = std::coroutine_handle<promise_type>;

  Task() noexcept = default;
  explicit Task(Handle handle) noexcept : handle_{handle} {}
  Task(Task&& other) noexcept : handle_{std::exchange(other.handle_, {})} {}
  Task& operator=(Task&& other) noexcept {
    if (this == &other) return *this;
    reset();
    handle_ = std::exchange(other.handle_, {});
    return *this;
  }
  ~Task() { reset(); }

  /// False: it was made empty or moved from.
  [[nodiscard]] explicit operator bool() const noexcept { return static_cast<bool>(handle_); }

  /// Starts it and waits for its end; the value is moved out.
  auto operator co_await() && noexcept {
    struct Awaiter {
      Handle handle;
      [[nodiscard]] bool await_ready() const noexcept { return !handle; }
      std::coroutine_handle<> await_suspend(std::coroutine_handle<> awaiter) const noexcept {
        constexpr auto kResume = [](void* whom, std::size_t /*index*/) noexcept {
          return std::coroutine_handle<>::from_address(whom);
        };
        handle.promise().end = {.tell = kResume, .whom = awaiter.address()};
        return handle;
      }
      T await_resume() const {
        if (!handle) return detail::end_of_empty_task<T>();
        return std::move(*handle.promise().result);
      }
    };
    return Awaiter{handle_};
  }

  /// Runs it until it first waits, in this thread. Once.
  void start() const {
    if (handle_) handle_.resume();
  }
  [[nodiscard]] bool done() const noexcept { return !handle_ || handle_.done(); }
  /// Only when done(), and not of an empty one.
  [[nodiscard]] T& result() const noexcept { return *handle_.promise().result; }
  /// Before it starts: what is told when it has ended.
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

/// Runs `task`, which a coroutine has made, in this thread until it first waits, and then wherever
/// it goes on; returns what it ended with. Blocks until then: not in a callback, nor in a coroutine
/// on a poller or the arena. For tasks whose operations are of AsyncQueues: those of
/// Region::async() need an Executor.
template <typename T>
T sync_wait(Task<T> task) {
  if (!task) return detail::end_of_empty_task<T>();
  detail::TaskWait waiting;
  task.on_end({.tell = &detail::TaskWait::ended, .whom = &waiting});
  task.start();
  waiting.wait();
  return std::move(task.result());
}

/// Runs tasks at once, a bounded number of them. After the first that fails no further one is
/// started. Belongs to one coroutine, which joins it before it ends; destroyed earlier, with the
/// coroutine, it destroys what still runs.
///
/// Its tasks may go on and end in different threads at once, lock-free. The coroutine that waits
/// for one to end goes on in the thread where that one has ended. Then join it always: it is
/// destroyed early only where none of its tasks can run meanwhile.
class Scope {
 public:
  /// `limit`: tasks that run at once, at least 1.
  explicit Scope(std::size_t limit);
  /// The same, and none is started after a stop was requested of `stop`. Give the same token to
  /// what the tasks await (AsyncRegion::with_stop(), AsyncControl::with_stop()), so that those
  /// which run end soon. Join it all the same: until then they use their buffers.
  Scope(std::size_t limit, std::stop_token stop);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

  /// Waits for room, then starts `task`, which runs on beside the caller. False: one has failed, or
  /// a stop was requested, and this one was not started. Allocates.
  Task<bool> spawn(Task<Status> task);
  /// Waits until all have ended: ok, or the first failure, which is kCancelled where a task was not
  /// started for a stop before any had failed.
  Task<Status> join();

 private:
  struct Core;
  std::unique_ptr<Core> core_;
};

}  // namespace remora
