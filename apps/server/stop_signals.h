#pragma once

/// SIGTERM and SIGINT as an orderly request to stop; the second one ends the process at once.

#include <csignal>
#include <future>
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

 private:
  void watch();

  sigset_t signals_{};
  std::promise<int> first_;
  std::thread thread_;
};

}  // namespace remora::apps
