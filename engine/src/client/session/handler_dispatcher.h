#pragma once

/// Calls the application's handlers for a session.

#include <deque>
#include <thread>

#include <remora/engine/engine.h>
#include <remora/mutex.h>
#include <remora/result.h>

namespace remora::detail {

class SessionCore;

/// Calls the handlers of one session in order, by one thread at a time, with no mutex locked, so
/// that a handler may call everything except the destructor of the engine. The session owns it.
/// Thread-safe.
class HandlerDispatcher {
 public:
  explicit HandlerDispatcher(SessionCore& session) noexcept : session_{session} {}
  HandlerDispatcher(const HandlerDispatcher&) = delete;
  HandlerDispatcher& operator=(const HandlerDispatcher&) = delete;

  /// Queues a call of `handler`, if the application has set it.
  void add(const SessionHandlers::Handler& handler, Reason reason);
  /// Makes the queued calls, unless another thread does so. While the queue is reserved, only the
  /// thread that has reserved it makes calls.
  void dispatch() noexcept;

  /// While a session is interrupted, the reconnector's thread calls the handlers.

  /// Reserves the queue for a thread that is starting: from now on no other thread calls handlers.
  void reserve();
  /// That thread calls it when it runs.
  void reserve_for_this_thread();
  /// Ends the reservation. False: calls are queued; the caller has to dispatch() them first.
  [[nodiscard]] bool release();
  /// Ends the reservation even if calls are queued, since the thread could not be started.
  void release_unused();

 private:
  struct Call {
    const SessionHandlers::Handler* handler;
    Reason reason;
  };
  void make(const Call& call) const noexcept;

  SessionCore& session_;
  Mutex mutex_;
  std::deque<Call> queue_ REMORA_GUARDED_BY(mutex_);
  bool dispatching_ REMORA_GUARDED_BY(mutex_) = false;  ///< a thread makes the calls
  bool reserved_ REMORA_GUARDED_BY(mutex_) = false;
  std::thread::id reserved_for_ REMORA_GUARDED_BY(mutex_);
};

}  // namespace remora::detail
