#pragma once

/// Tells the service manager that the server makes progress, for as long as it does.

#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <utility>

#include <remora/mutex.h>
#include <remora/result.h>

namespace remora::apps {

/// Sends WATCHDOG=1 three times in WatchdogSec= while the server is alive. Without WATCHDOG_USEC it
/// does nothing. Source: sd_watchdog_enabled(3).
class Watchdog {
 public:
  /// Usually Server::alive(); the watchdog's own thread calls it.
  using Alive = std::function<Status()>;
  /// Errors: those of start_thread().
  static Result<std::unique_ptr<Watchdog>> start(Alive alive);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  explicit Watchdog(Alive alive) noexcept : alive_{std::move(alive)} {}
  void run(std::chrono::microseconds period) noexcept;

  const Alive alive_;
  detail::Mutex mutex_;
  detail::Condition stopped_;
  bool stop_ REMORA_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

/// The period of WATCHDOG_USEC, if it is for this process; empty: no pings are requested.
[[nodiscard]] std::chrono::microseconds watchdog_period() noexcept;

}  // namespace remora::apps
