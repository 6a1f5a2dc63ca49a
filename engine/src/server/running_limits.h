#pragma once

/// The limits that a server goes by. Server::set_limits() changes them while it runs, so each use
/// asks for them anew.

#include <remora/config/server_config.h>
#include <remora/mutex.h>

namespace remora::detail {

/// Thread-safe. Its mutex is held for a copy of the limits and for nothing else.
class RunningLimits {
 public:
  explicit RunningLimits(const config::Limits& limits) noexcept : limits_{limits} {}
  RunningLimits(const RunningLimits&) = delete;
  RunningLimits& operator=(const RunningLimits&) = delete;

  /// As they are now.
  [[nodiscard]] config::Limits get() const noexcept REMORA_EXCLUDES(mutex_) {
    const MutexLock lock{mutex_};
    return limits_;
  }
  /// For every use from now on. What a part of the server has made for the limits before stays.
  void set(const config::Limits& limits) noexcept REMORA_EXCLUDES(mutex_) {
    const MutexLock lock{mutex_};
    limits_ = limits;
  }

 private:
  mutable Mutex mutex_;
  config::Limits limits_ REMORA_GUARDED_BY(mutex_);
};

}  // namespace remora::detail
