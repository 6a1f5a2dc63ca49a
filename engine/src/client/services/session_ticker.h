#pragma once

/// Calls sessions regularly for their leases.

#include <chrono>
#include <memory>
#include <vector>

#include <remora/mutex.h>

#include "base/clock.h"
#include "base/event_loop.h"

namespace remora::detail {

class EngineServices;

/// Calls the sessions of one engine several times in each lease, on the engine's control thread.
/// The engine owns it. Thread-safe.
class SessionTicker {
 public:
  /// A session, as the ticker calls it.
  class Ticked {
   public:
    virtual ~Ticked() = default;
    virtual void tick(Clock::time_point now) noexcept = 0;
  };

  /// From now on calls `session`, as long as it lives, on the thread of `loop`, often enough for
  /// `lease`. As often, the engine's memory checks its devices. `loop`: the engine's.
  void add(const std::shared_ptr<Ticked>& session, std::chrono::milliseconds lease, EventLoop& loop,
           const std::shared_ptr<EngineServices>& engine);
  /// The control thread calls it.
  void tick_all() noexcept;

 private:
  Mutex mutex_;
  std::chrono::milliseconds period_ REMORA_GUARDED_BY(mutex_){0};  ///< 0: no session needs it
  /// Includes sessions that still connect, or were replaced.
  std::vector<std::weak_ptr<Ticked>> sessions_ REMORA_GUARDED_BY(mutex_);
};

}  // namespace remora::detail
