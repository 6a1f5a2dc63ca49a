#pragma once

#include <atomic>
#include <thread>

#include <remora/result.h>

#include "base/unique_fd.h"

namespace remora {

/// The descriptors on which a service thread sleeps, and the request to stop it. The thread and its
/// owner share it: a thread that outlives its owner must keep it alive.
class ServiceState {
 public:
  ServiceState() = default;
  ServiceState(const ServiceState&) = delete;
  ServiceState& operator=(const ServiceState&) = delete;

  /// Call it before the other functions. Errors: kSystem.
  Status open();

  /// The epoll set in which the thread sleeps. In it, the event of wake() has the data 0.
  [[nodiscard]] int epoll() const noexcept { return epoll_.get(); }
  /// The descriptor that wake() makes readable.
  [[nodiscard]] int wake_event() const noexcept { return wake_.get(); }
  /// Ends the thread's sleep, or its next one. Any thread.
  void wake() noexcept { signal_event(wake_.get()); }
  /// The thread calls this after the event of wake() has ended its sleep.
  void clear_wake() noexcept;

  /// Asks the thread to return from its function, and wakes it. Any thread.
  void request_stop() noexcept {
    stop_.store(true, std::memory_order_release);
    wake();
  }
  [[nodiscard]] bool stop_requested() const noexcept {
    return stop_.load(std::memory_order_acquire);
  }
  /// Whether the calling thread is the service thread. Any thread.
  [[nodiscard]] bool is_this_thread() const noexcept {
    return std::this_thread::get_id() == thread_id_.load(std::memory_order_relaxed);
  }

 private:
  friend class ServiceThread;
  UniqueFd epoll_;
  UniqueFd wake_;
  std::atomic<bool> stop_{false};
  std::atomic<std::thread::id> thread_id_;  ///< stored by the thread before it calls its function
};

}  // namespace remora
