#pragma once

/// SIGTERM and SIGINT as an orderly request to stop, also while the server starts. The second one
/// requests expedite_stop, which still releases everything (GNU timeout sends two at once); the
/// third one ends the process. SIGHUP requests that the configuration is read again.

#include <chrono>
#include <csignal>
#include <functional>
#include <memory>
#include <stop_token>
#include <thread>

#include <remora/mutex.h>
#include <remora/result.h>

namespace remora::apps {

/// Prevents SIGHUP from ending the process: a service manager may send it as soon as the process
/// exists. Called first in main(); Signals handles a SIGHUP that has come meanwhile.
void hold_hang_up() noexcept;

/// Blocks SIGTERM, SIGINT and SIGHUP and waits for them on its own thread. Make it before any other
/// thread, since threads inherit blocked signals. One for each process.
class Signals {
 public:
  /// Errors: kSystem with Reason::kNoThread, kOutOfMemory.
  static Result<std::unique_ptr<Signals>> start();
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  /// A stop is requested at the first SIGTERM or SIGINT.
  [[nodiscard]] std::stop_token stop_token() const noexcept { return stop_.get_token(); }
  /// Blocks until the first SIGTERM or SIGINT, and returns its number.
  int wait();
  /// The same, and calls `tick` each `period` meanwhile.
  int wait(std::chrono::nanoseconds period, const std::function<void()>& tick);

  /// The action at the second one, on the thread of the signals: at once if it has come already.
  /// Null: no action; on return the former action does not run and will not run.
  void on_second(std::function<void()> action);
  /// The same for each SIGHUP; a SIGHUP that has come before there is an action is kept for it.
  void on_hang_up(std::function<void()> action);

 private:
  Signals() = default;
  void watch();
  void hung_up();
  void told_to_stop(int signal);

  sigset_t signals_{};
  std::stop_source stop_;
  detail::Mutex mutex_;
  detail::Condition first_came_;
  /// The first signal; 0: none yet.
  int first_ REMORA_GUARDED_BY(mutex_) = 0;
  int received_ REMORA_GUARDED_BY(mutex_) = 0;
  std::function<void()> second_ REMORA_GUARDED_BY(mutex_);
  /// A SIGHUP came before there was an action for it.
  bool hung_up_ REMORA_GUARDED_BY(mutex_) = false;
  std::function<void()> hang_up_ REMORA_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace remora::apps
