#pragma once

/// A thread that serves descriptors until it is stopped. Event loops, pollers and the threads of
/// tcp are such threads, each with its own loop.

#include <functional>
#include <thread>
#include <utility>

#include <remora/result.h>

#include "base/service_state.h"

namespace remora {

/// Owns a service thread; its destructor stops the thread. Not thread-safe.
class ServiceThread {
 public:
  ServiceThread() = default;
  ~ServiceThread() { stop(); }
  ServiceThread(ServiceThread&& other) noexcept
      : state_{std::exchange(other.state_, nullptr)}, thread_{std::move(other.thread_)} {}
  ServiceThread& operator=(ServiceThread&& other) noexcept;
  ServiceThread(const ServiceThread&) = delete;
  ServiceThread& operator=(const ServiceThread&) = delete;

  /// Runs `body` on a new thread; `name` has at most 15 bytes. `state` is open; `body` must return
  /// once a stop of it is requested. Errors: kSystem with Reason::kNoThread, kOutOfMemory.
  static Result<ServiceThread> start(const char* name, ServiceState& state,
                                     std::function<void()> body);

  /// Requests the stop, and waits until the thread has ended. When the thread itself calls it, it
  /// does not wait: the thread ends after the caller has returned. Idempotent.
  void stop() noexcept;
  /// Returns the thread, without a stop. The caller must join or detach it.
  [[nodiscard]] auto release() noexcept { return std::move(thread_); }

 private:
  ServiceThread(ServiceState& state, std::thread thread) noexcept
      : state_{&state}, thread_{std::move(thread)} {}

  ServiceState* state_ = nullptr;
  std::thread thread_;
};

}  // namespace remora
