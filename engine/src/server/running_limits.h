#pragma once

/// The present limits of a server. Server::set_limits() changes them while it runs, so each use
/// reads them again.

#include <remora/config/server_config.h>
#include <remora/mutex.h>

namespace remora::detail {

/// Thread-safe. Its mutex is held for a copy of the limits and for nothing else.
class RunningLimits {
 public:
  explicit RunningLimits(const config::Limits& limits) noexcept : limits_{limits} {}
  RunningLimits(const RunningLimits&) = delete;
  RunningLimits& operator=(const RunningLimits&) = delete;

  /// A copy of the present limits.
  [[nodiscard]] config::Limits get() const noexcept REMORA_EXCLUDES(mutex_) {
    const MutexLock lock{mutex_};
    return limits_;
  }
  /// Applies to every use from now on. Objects that were made for the former limits stay.
  void set(const config::Limits& limits) noexcept REMORA_EXCLUDES(mutex_) {
    const MutexLock lock{mutex_};
    limits_ = limits;
  }

 private:
  mutable Mutex mutex_;
  config::Limits limits_ REMORA_GUARDED_BY(mutex_);
};

}  // namespace remora::detail
