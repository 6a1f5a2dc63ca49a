#pragma once

/// The clock of the sessions that have a lease.

#include <chrono>
#include <memory>
#include <vector>

#include <remora/mutex.h>

#include "base/clock.h"
#include "base/event_loop.h"

namespace remora::detail {

class EngineServices;

/// Calls the sessions of one engine several times in each lease, on the engine's control thread.
/// Thread-safe.
class SessionTicker {
 public:
  /// A session.
  class Ticked {
   public:
    virtual ~Ticked() = default;
    virtual void tick(Clock::time_point now) noexcept = 0;
  };

  /// Calls `session` on the thread of `loop` from now on, while it lives, often enough for a lease
  /// of that length. Its memory looks at its devices as often. `loop`: of the engine.
  void add(const std::shared_ptr<Ticked>& session, std::chrono::milliseconds lease, EventLoop& loop,
           const std::shared_ptr<EngineServices>& engine);
  /// Control thread.
  void tick_all() noexcept;

 private:
  Mutex mutex_;
  std::chrono::milliseconds period_ REMORA_GUARDED_BY(mutex_){0};  ///< 0: no session needs it
  /// Also sessions that are still being connected, or replaced by another one.
  std::vector<std::weak_ptr<Ticked>> sessions_ REMORA_GUARDED_BY(mutex_);
};

}  // namespace remora::detail
