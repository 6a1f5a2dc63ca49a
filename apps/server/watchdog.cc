#include "server/watchdog.h"

#include <unistd.h>
#include <utility>

#include <remora/start_thread.h>

#include "server/environment.h"
#include "server/log.h"
#include "server/service_manager.h"

namespace remora::apps {
std::chrono::microseconds watchdog_period() noexcept {
  const std::uint64_t process = number_in_environment("WATCHDOG_PID").value_or(0);
  if (process != 0 && process != static_cast<std::uint64_t>(::getpid()))
    return std::chrono::microseconds{0};
  return std::chrono::microseconds{number_in_environment("WATCHDOG_USEC").value_or(0)};
}

Result<std::unique_ptr<Watchdog>> Watchdog::start(Alive alive) {
  constexpr int kPings = 3;
  std::unique_ptr<Watchdog> watchdog{new Watchdog{std::move(alive)}};
  if (watchdog_period().count() == 0) return watchdog;
  auto thread = detail::start_thread(
      "remora-watchdog",
      [raw = watchdog.get(), period = watchdog_period() / kPings] { raw->run(period); });
  if (!thread) return thread.error();
  watchdog->thread_ = std::move(*thread);
  return watchdog;
}

Watchdog::~Watchdog() {
  {
    const detail::MutexLock lock{mutex_};
    stop_ = true;
  }
  stopped_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Watchdog::run(std::chrono::microseconds period) noexcept {
  bool said = false;
  detail::MutexLock lock{mutex_};
  while (!stop_) {
    lock.unlock();
    const Status alive = alive_();
    if (alive)
      notify_service_manager("WATCHDOG=1", std::chrono::milliseconds{0});
    else if (!std::exchange(said, true))
      log_error("watchdog.withheld",
                "watchdog: " + alive.error().message() +
                    ": the service manager is not told that the server is alive",
                {{"reason", alive.error().message()}});
    said = said && !alive;
    lock.lock();
    stopped_.wait_for(lock, period, [this] {
      mutex_.assert_held();
      return stop_;
    });
  }
}

}  // namespace remora::apps
