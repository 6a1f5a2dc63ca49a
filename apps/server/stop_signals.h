#pragma once

/// SIGTERM and SIGINT as an orderly request to stop. The second one asks to hurry and still leaves
/// nothing behind (GNU timeout sends two at once); the third ends the process.

#include <csignal>
#include <functional>
#include <future>
#include <mutex>
#include <thread>

namespace remora::apps {

/// Blocks SIGTERM, SIGINT and SIGHUP and waits for them on a thread of its own. Make it before any
/// other thread, since threads inherit what is blocked. One a process.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// Blocks until the first SIGTERM or SIGINT, and returns which it was.
  int wait() { return first_.get_future().get(); }

  /// What to do at the second one, on the thread of the signals: at once if it has come already.
  /// Null: nothing; when this returns, what was set before does not run and will not.
  void on_second(std::function<void()> action);

 private:
  void watch();

  sigset_t signals_{};
  std::promise<int> first_;
  std::mutex mutex_;
  int received_ = 0;
  std::function<void()> second_;
  std::thread thread_;
};

}  // namespace remora::apps
