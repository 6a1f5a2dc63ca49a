#pragma once

#include <signal.h>

#include <remora/mutex.h>

namespace remora::metrics {

/// httplib::Server's constructor makes the whole process ignore SIGPIPE, which this library does
/// not need. One server is made at a time, so that none restores the disposition that another's
/// constructor has set.
class KeptSigpipe {
 public:
  KeptSigpipe() : one_at_a_time_{mutex()} { ::sigaction(SIGPIPE, nullptr, &before_); }
  /// Keeps a disposition that another thread of the application has set meanwhile. clang does not
  /// follow a lock that the constructor takes and this function releases.
  void restore() noexcept REMORA_NO_THREAD_SAFETY_ANALYSIS {
    struct sigaction now {};
    ::sigaction(SIGPIPE, nullptr, &now);
    if (now.sa_handler == SIG_IGN) ::sigaction(SIGPIPE, &before_, nullptr);
    one_at_a_time_.unlock();
  }

 private:
  static detail::Mutex& mutex() {
    static detail::Mutex one_at_a_time;
    return one_at_a_time;
  }

  detail::MutexLock one_at_a_time_;
  struct sigaction before_ {};
};

}  // namespace remora::metrics
