#pragma once

/// SIGTERM and SIGINT as an orderly request to stop. The second one asks to hurry and still leaves
/// nothing behind (GNU timeout sends two at once); the third ends the process. SIGHUP asks to read
/// the configuration again.

#include <csignal>
#include <functional>
#include <future>
#include <mutex>
#include <thread>

namespace remora::apps {

/// Blocks SIGTERM, SIGINT and SIGHUP and waits for them on a thread of its own. Make it before any
/// other thread, since threads inherit what is blocked. One a process.
class Signals {
 public:
  Signals();
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  /// Blocks until the first SIGTERM or SIGINT, and returns which it was.
  int wait() { return first_.get_future().get(); }

  /// What to do at the second one, on the thread of the signals: at once if it has come already.
  /// Null: nothing; when this returns, what was set before does not run and will not.
  void on_second(std::function<void()> action);
  /// The same for each SIGHUP; one that has come before there is an action is kept for it.
  void on_hang_up(std::function<void()> action);

 private:
  void watch();
  void hung_up();

  sigset_t signals_{};
  std::promise<int> first_;
  std::mutex mutex_;
  int received_ = 0;
  std::function<void()> second_;
  bool hung_up_ = false;  ///< and nothing was done about it
  std::function<void()> hang_up_;
  std::thread thread_;
};

}  // namespace remora::apps
