#pragma once

/// The control calls of an engine that have not ended, the threads that run their blocking
/// functions, and the timer that ends calls whose deadline has passed.
///
/// A call is claimed once, under the lock: by its thread, which has the result; by the timer; by
/// cancel(); or by close(). The thread that claims it sets the result, and hands the call to the
/// thread that reports its end. If another thread has claimed the call, the call's own thread drops
/// its result.

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

/// Shared by the engine, its control threads, and calls whose end is being reported. Thread-safe.
class ControlCalls : public std::enable_shared_from_this<ControlCalls> {
 public:
  ControlCalls(std::size_t threads_max, Placement placement)
      : threads_max_{threads_max}, placement_{std::move(placement)} {}
  ControlCalls(const ControlCalls&) = delete;
  ControlCalls& operator=(const ControlCalls&) = delete;
  ~ControlCalls() = default;

  /// Takes `record`, whose deadline is set, and lets a control thread carry it out. `loop`: the
  /// engine's loop, for the timer; it lives longer than close(). Errors: kClosed, kWouldBlock,
  /// kSystem, kCancelled, kInvalidArgument; the record was not taken.
  Status add(const std::shared_ptr<ControlRecord>& record, EventLoop& loop);
  /// Ends the call with `error`; if the call was not added yet, add() will refuse it. False: the
  /// call has ended already.
  bool end(ControlRecord& record, const Error& error) noexcept;
  /// The thread that has carried out the call calls it. See ControlRecord::claim().
  [[nodiscard]] bool claim(ControlRecord& record) noexcept;
  /// The end of a call was reported, for which ~Engine waits.
  void was_told() noexcept;
  /// Ends all calls with kClosed and refuses new ones. With `wait` it waits, at most 2 s, until a
  /// poller or the arena has reported the ends that it is to report, and until threads have
  /// released the calls that they have claimed. It does not wait if this thread is reporting an
  /// end. Idempotent.
  void close(bool wait) noexcept;
  /// Ends the threads; the calling one, if it is one of them, ends by itself. ~EngineServices calls
  /// it.
  void stop() noexcept;

  /// Exists while this thread reports the end of a call.
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
  Condition rest_;  ///< close() waits on it
  std::unordered_map<ControlRecord*, std::shared_ptr<ControlRecord>> calls_
      REMORA_GUARDED_BY(mutex_);  ///< calls that have not ended
  std::deque<std::shared_ptr<ControlRecord>> queue_
      REMORA_GUARDED_BY(mutex_);  ///< Calls that no thread has taken.
  std::vector<std::thread> threads_ REMORA_GUARDED_BY(mutex_);
  std::size_t busy_ REMORA_GUARDED_BY(mutex_) = 0;  ///< threads that carry out a call
  std::size_t finishing_ REMORA_GUARDED_BY(mutex_) =
      0;  ///< Ends that a poller or the arena is to report.
  std::size_t untold_ REMORA_GUARDED_BY(mutex_) =
      0;  ///< Busy threads that have claimed their call.
  bool closed_ REMORA_GUARDED_BY(mutex_) = false;
  bool stopping_ REMORA_GUARDED_BY(mutex_) = false;
  EventLoop* loop_ REMORA_GUARDED_BY(mutex_) = nullptr;  ///< while there is a timer
  EventLoop::Token timer_watch_ REMORA_GUARDED_BY(mutex_) = 0;
  TimerFd timer_;  ///< open() is called with mutex_ locked; thread-safe after that
  Deadline armed_ REMORA_GUARDED_BY(mutex_) = Deadline::max();
};

}  // namespace remora::detail
