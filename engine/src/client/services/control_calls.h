#pragma once

/// The control calls of one engine that have not ended, the threads that run their blocking
/// functions, and the timer that ends those whose deadline has passed.
///
/// A call is claimed once, under the lock: by its thread, which has the result; by the timer; by
/// cancel(); by close(). The thread that claims it sets the result and hands the call over to where
/// its end is told. A thread whose call was claimed by another drops what it made.

#include <cstddef>
#include <deque>
#include <memory>
#include <thread>
#include <unordered_map>
#include <vector>

#include <remora/engine/control.h>
#include <remora/mutex.h>

#include "base/clock.h"
#include "base/event_loop.h"
#include "base/placement.h"
#include "base/timer_fd.h"

namespace remora::detail {

/// Shared by the engine, its control threads, and calls whose end is being told.
class ControlCalls : public std::enable_shared_from_this<ControlCalls> {
 public:
  ControlCalls(std::size_t threads_max, Placement placement)
      : threads_max_{threads_max}, placement_{std::move(placement)} {}
  ControlCalls(const ControlCalls&) = delete;
  ControlCalls& operator=(const ControlCalls&) = delete;
  ~ControlCalls() = default;

  /// Takes `record`, whose deadline is set, and has a control thread work on it. `loop`: of the
  /// timer; the engine's, which outlives close(). Errors: kClosed, kWouldBlock, kSystem,
  /// kCancelled, kInvalidArgument; the record was not taken.
  Status add(const std::shared_ptr<ControlRecord>& record, EventLoop& loop);
  /// Ends the call with `error`, or, where it was not taken yet, has add() refuse it. False: it has
  /// ended before.
  bool end(ControlRecord& record, const Error& error) noexcept;
  /// By the thread that has worked on it. See ControlRecord::claim().
  [[nodiscard]] bool claim(ControlRecord& record) noexcept;
  /// The end of a call was told where ~Engine waits for it.
  void was_told() noexcept;
  /// Ends all calls with kClosed, takes no more, and waits until ends are told that a poller or the
  /// arena is to tell, and until threads that are done with a call have let go of it: 2 s at most.
  /// Does not wait where an end is being told in this thread, nor without `wait`. Idempotent.
  void close(bool wait) noexcept;
  /// Ends the threads, but for the calling one, which ends by itself. By ~EngineServices.
  void stop() noexcept;

  /// While an end is told in this thread.
  class Telling {
   public:
    Telling() noexcept;
    ~Telling();
    Telling(const Telling&) = delete;
    Telling& operator=(const Telling&) = delete;
  };

 private:
  Status start_thread() noexcept REMORA_REQUIRES(mutex_);
  Status start_timer(EventLoop& loop) REMORA_REQUIRES(mutex_);
  static void run(const std::shared_ptr<ControlCalls>& calls) noexcept;
  static void give_up(ControlRecord& record, const Error& error) noexcept;
  void arm(Deadline at) noexcept REMORA_REQUIRES(mutex_);
  void expire() noexcept;
  [[nodiscard]] std::shared_ptr<ControlRecord> take_out(ControlRecord& record) noexcept
      REMORA_REQUIRES(mutex_);

  const std::size_t threads_max_;
  const Placement placement_;
  Mutex mutex_;
  Condition work_;
  Condition rest_;  ///< with close()
  std::unordered_map<ControlRecord*, std::shared_ptr<ControlRecord>> calls_
      REMORA_GUARDED_BY(mutex_);  ///< that have not ended
  std::deque<std::shared_ptr<ControlRecord>> queue_
      REMORA_GUARDED_BY(mutex_);  ///< of them, those without a thread
  std::vector<std::thread> threads_ REMORA_GUARDED_BY(mutex_);
  std::size_t busy_ REMORA_GUARDED_BY(mutex_) = 0;       ///< threads with a call
  std::size_t finishing_ REMORA_GUARDED_BY(mutex_) = 0;  ///< of them, those that have claimed it
  std::size_t untold_ REMORA_GUARDED_BY(mutex_) =
      0;  ///< ends on their way to a poller or the arena
  bool closed_ REMORA_GUARDED_BY(mutex_) = false;
  bool stopping_ REMORA_GUARDED_BY(mutex_) = false;
  EventLoop* loop_ REMORA_GUARDED_BY(mutex_) = nullptr;  ///< while there is a timer
  EventLoop::Token timer_watch_ REMORA_GUARDED_BY(mutex_) = 0;
  TimerFd timer_;  ///< opened with mutex_ locked; thread-safe from then on
  Deadline armed_ REMORA_GUARDED_BY(mutex_) = Deadline::max();
};

}  // namespace remora::detail
