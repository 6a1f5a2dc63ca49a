#include "client/services/session_ticker.h"

#include <algorithm>
#include <utility>

#include "client/services/engine_services.h"

namespace remora::detail {

namespace {

/// The sessions are called at this fraction of the shortest lease.
constexpr int kTicksOfALease = 10;
constexpr std::chrono::milliseconds kMinPeriod{10};
constexpr std::chrono::milliseconds kMaxPeriod{1000};

}  // namespace

void SessionTicker::add(const std::shared_ptr<Ticked>& session, std::chrono::milliseconds lease,
                        EventLoop& loop, const std::shared_ptr<EngineServices>& engine) {
  const MutexLock lock{mutex_};
  std::erase_if(sessions_, [](const auto& weak) { return weak.expired(); });
  sessions_.push_back(session);
  const auto period = std::clamp(lease / kTicksOfALease, kMinPeriod, kMaxPeriod);
  if (period_ != period_.zero() && period_ <= period) return;
  period_ = period;
  loop.every(period, [weak = std::weak_ptr{engine}] {
    const auto alive = weak.lock();
    if (alive == nullptr) return;
    alive->ticker().tick_all();
    alive->memory().look_at_devices();
  });
}

void SessionTicker::tick_all() noexcept {
  // Destroyed after the lock, since the last reference to a session must not be released with the
  // ticker locked.
  std::vector<std::shared_ptr<Ticked>> sessions;
  {
    const MutexLock lock{mutex_};
    sessions.reserve(sessions_.size());
    for (const auto& weak : sessions_)
      if (auto alive = weak.lock()) sessions.push_back(std::move(alive));
  }
  for (const auto& session : sessions) session->tick(Clock::now());
}

}  // namespace remora::detail
