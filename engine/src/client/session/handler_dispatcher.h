#pragma once

/// Calls the handlers that the application has given for its sessions.

#include <deque>
#include <thread>

#include <remora/engine/engine.h>
#include <remora/mutex.h>
#include <remora/result.h>

namespace remora::detail {

class SessionCore;

/// Tells the application of one session: in order, by one thread at a time, and with no mutex
/// locked, so that a handler may call anything but the destructor of the engine. Thread-safe.
class HandlerDispatcher {
 public:
  explicit HandlerDispatcher(SessionCore& session) noexcept : session_{session} {}
  HandlerDispatcher(const HandlerDispatcher&) = delete;
  HandlerDispatcher& operator=(const HandlerDispatcher&) = delete;

  /// Queues a call of `handler`, if the application has given that one.
  void add(const SessionHandlers::Handler& handler, Reason reason);
  /// Calls what is queued, unless another thread does that. Where a thread has reserved the queue
  /// only that thread does.
  void dispatch() noexcept;

  // While a session is interrupted the thread that connects again calls the handlers.
  /// For a thread that starts; no other thread calls handlers from now on.
  void reserve();
  /// By that thread, once it runs.
  void reserve_for_this_thread();
  /// False: there are calls that no thread makes; the caller has to dispatch() them first.
  [[nodiscard]] bool release();
  /// The same, whatever is queued: that thread was not to be had.
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
