#pragma once

/// The progress of the server's start, for the log and the service manager.

#include <chrono>

#include <remora/engine/server.h>

namespace remora::apps {

/// A line of the log every 2 s and a STATUS= every 500 ms. Each of the latter also asks the service
/// manager for more time (EXTEND_TIMEOUT_USEC=): a large pool takes longer than the default
/// TimeoutStartSec= of systemd. Called by one thread.
class StartProgressReport {
 public:
  void tell(const StartProgress& progress);

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point logged_ = Clock::now();  ///< a quick start writes no line
  Clock::time_point notified_{};
  StartProgress::Step step_ = StartProgress::Step::kPool;
};

}  // namespace remora::apps
