#pragma once

/// SIGTERM and SIGINT as an orderly request to stop, also while the server starts. The second one
/// asks to expedite_stop and still leaves nothing behind (GNU timeout sends two at once); the third
/// ends the process. SIGHUP asks to read the configuration again.

#include <chrono>
#include <csignal>
#include <functional>
#include <memory>
#include <stop_token>
#include <thread>

#include <remora/mutex.h>
#include <remora/result.h>

namespace remora::apps {

/// Keeps SIGHUP from ending the process: a service manager may send it as soon as the process is
/// there. First in main(); Signals takes one that has come meanwhile.
void hold_hang_up() noexcept;

/// Blocks SIGTERM, SIGINT and SIGHUP and waits for them on a thread of its own. Make it before any
/// other thread, since threads inherit what is blocked. One a process.
class Signals {
 public:
  /// Errors: kSystem with Reason::kNoThread, kOutOfMemory.
  static Result<std::unique_ptr<Signals>> start();
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  /// Requested at the first SIGTERM or SIGINT.
  [[nodiscard]] std::stop_token stop_token() const noexcept { return stop_.get_token(); }
  /// Blocks until the first SIGTERM or SIGINT, and returns which it was.
  int wait();
  /// The same, and calls `tick` each `period` meanwhile.
  int wait(std::chrono::nanoseconds period, const std::function<void()>& tick);

  /// The action at the second one, on the thread of the signals: at once if it has come already.
  /// Null: nothing; when this returns, what was set before does not run and will not.
  void on_second(std::function<void()> action);
  /// The same for each SIGHUP; one that has come before there is an action is kept for it.
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
  /// 0: none yet.
  int first_ REMORA_GUARDED_BY(mutex_) = 0;
  int received_ REMORA_GUARDED_BY(mutex_) = 0;
  std::function<void()> second_ REMORA_GUARDED_BY(mutex_);
  /// A SIGHUP came before there was an action for it.
  bool hung_up_ REMORA_GUARDED_BY(mutex_) = false;
  std::function<void()> hang_up_ REMORA_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace remora::apps
