#pragma once

/// Task and Scope: the least that coroutines over remote memory need. They know nothing of threads:
/// an Executor (executor.h) runs them in the thread that calls it.
///
/// A task is lazy: it starts when it is awaited, spawned or run, and is destroyed with its handle,
/// at any point: operations it had in flight end by themselves, in buffers that they own.

#include <coroutine>
#include <cstddef>
#include <exception>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <remora/result.h>

namespace remora {

template <typename T>
class Task;

namespace detail {

/// Resumes whoever awaited the task.
struct ResumeAwaiter {
  [[nodiscard]] bool await_ready() const noexcept { return false; }
  template <typename Promise>
  std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> ended) const noexcept {
    return ended.promise().awaiter ? ended.promise().awaiter : std::noop_coroutine();
  }
  void await_resume() const noexcept {}
};

template <typename T>
struct TaskPromise {
  Task<T> get_return_object() noexcept;
  [[nodiscard]] std::suspend_always initial_suspend() const noexcept { return {}; }
  [[nodiscard]] ResumeAwaiter final_suspend() const noexcept { return {}; }
  /// The library throws nothing; what the application's own code throws here has no way out.
  [[noreturn]] void unhandled_exception() const noexcept { std::terminate(); }
  template <typename Value>
  void return_value(Value&& value) {
    result.emplace(std::forward<Value>(value));
  }

  std::coroutine_handle<> awaiter;
  std::optional<T> result;
};

}  // namespace detail

/// A coroutine that ends with a T, usually a Status or a Result. Move-only; owns its frame.
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

  /// Starts it and waits for its end; the value is moved out.
  auto operator co_await() && noexcept {
    struct Awaiter {
      Handle handle;
      [[nodiscard]] bool await_ready() const noexcept { return false; }
      std::coroutine_handle<> await_suspend(std::coroutine_handle<> awaiter) const noexcept {
        handle.promise().awaiter = awaiter;
        return handle;
      }
      T await_resume() const { return std::move(*handle.promise().result); }
    };
    return Awaiter{handle_};
  }

  /// For executors: runs it until it first waits. Once.
  void start() const { handle_.resume(); }
  [[nodiscard]] bool done() const noexcept { return !handle_ || handle_.done(); }
  /// Only when done().
  [[nodiscard]] T& result() const noexcept { return *handle_.promise().result; }
  /// Resumed when the task ends.
  void on_end(std::coroutine_handle<> awaiter) const noexcept {
    handle_.promise().awaiter = awaiter;
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

/// Runs tasks at once, a bounded number of them. After the first that fails no further one is
/// started. Belongs to one coroutine, which joins it before it ends; destroyed earlier, with the
/// coroutine, it destroys what still runs.
class Scope {
 public:
  /// `limit`: tasks that run at once, at least 1.
  explicit Scope(std::size_t limit);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

  /// Waits for room, then starts `task`, which runs on beside the caller. Allocates.
  Task<bool> spawn(Task<Status> task);
  /// Waits until all have ended: ok, or the first failure.
  Task<Status> join();

 private:
  struct Core;
  std::unique_ptr<Core> core_;
};

}  // namespace remora
