#pragma once

/// A thread that serves descriptors until it is stopped: what an event loop, a poller and the
/// threads of tcp have in common. Each has a loop of its own.

#include <atomic>
#include <functional>
#include <thread>
#include <utility>

#include <remora/result.h>

#include "base/unique_fd.h"

namespace remora {

/// What a service thread sleeps on, and how it is woken and stopped. Shared by the thread and its
/// owner: a thread that outlives its owner must keep it alive.
class ServiceState {
 public:
  ServiceState() = default;
  ServiceState(const ServiceState&) = delete;
  ServiceState& operator=(const ServiceState&) = delete;

  /// Before the other functions. Errors: kSystem.
  Status open();

  /// The epoll set in which the thread sleeps. The event of wake() has the data 0 there.
  [[nodiscard]] int epoll() const noexcept { return epoll_.get(); }
  /// The descriptor that wake() makes readable.
  [[nodiscard]] int wake_event() const noexcept { return wake_.get(); }
  /// Ends the thread's sleep, or its next one. Any thread.
  void wake() noexcept { signal_event(wake_.get()); }
  /// By the thread, once the event of wake() has ended its sleep.
  void clear_wake() noexcept;

  /// Asks the thread to return from its body, and wakes it. Any thread.
  void request_stop() noexcept {
    stop_.store(true, std::memory_order_release);
    wake();
  }
  [[nodiscard]] bool stop_requested() const noexcept {
    return stop_.load(std::memory_order_acquire);
  }
  /// The calling thread is the service thread. Any thread.
  [[nodiscard]] bool is_this_thread() const noexcept {
    return std::this_thread::get_id() == thread_id_.load(std::memory_order_relaxed);
  }

 private:
  friend class ServiceThread;
  UniqueFd epoll_;
  UniqueFd wake_;
  std::atomic<bool> stop_{false};
  std::atomic<std::thread::id> thread_id_;  ///< stored by the thread before its body
};

/// Owns a service thread. Its destructor stops the thread. Not thread-safe.
class ServiceThread {
 public:
  ServiceThread() = default;
  ~ServiceThread() { stop(); }
  ServiceThread(ServiceThread&& other) noexcept
      : state_{std::exchange(other.state_, nullptr)}, thread_{std::move(other.thread_)} {}
  ServiceThread& operator=(ServiceThread&& other) noexcept;
  ServiceThread(const ServiceThread&) = delete;
  ServiceThread& operator=(const ServiceThread&) = delete;

  /// Runs `body` on a new thread; `name` has at most 15 bytes. `body` returns when a stop of
  /// `state`, which is open, is requested. Errors: kSystem with Reason::kNoThread, kOutOfMemory.
  static Result<ServiceThread> start(const char* name, ServiceState& state,
                                     std::function<void()> body);

  /// Requests the stop, and waits until the thread has ended. On the thread itself it does not
  /// wait: the thread ends by itself, after the caller has returned. Idempotent.
  void stop() noexcept;
  /// Gives the thread up without a stop.
  [[nodiscard]] auto release() noexcept { return std::move(thread_); }

 private:
  ServiceThread(ServiceState& state, std::thread thread) noexcept
      : state_{&state}, thread_{std::move(thread)} {}

  ServiceState* state_ = nullptr;
  std::thread thread_;
};

}  // namespace remora
