#pragma once

#include <memory>
#include <string>
#include <utility>

#include <remora/mutex.h>

#include "transport/memory_domain.h"

namespace remora::transport {

/// The memory domain of one session. The connections of the session share this object: the first
/// connection sets the domain, and the later ones use it, since the local keys of waiting
/// operations belong to it. Thread-safe.
class SessionDomain {
 public:
  /// The session has connected over `device`, on which the domain is now.
  void set(const std::shared_ptr<MemoryDomain>& domain, std::string device) {
    const remora::detail::MutexLock lock{mutex_};
    domain_ = domain;
    device_ = std::move(device);
    left_behind_ = false;
  }
  /// Null: no connection has been made, or the session has been destroyed.
  [[nodiscard]] std::shared_ptr<MemoryDomain> get() const {
    const remora::detail::MutexLock lock{mutex_};
    return domain_.lock();
  }
  /// The device of the last connection.
  [[nodiscard]] std::string device() const {
    const remora::detail::MutexLock lock{mutex_};
    return device_;
  }
  /// Other sessions have moved the domain to `device`, and this one could not follow. True: it is
  /// the first time since its last connection, and `device` is not that of the connection.
  [[nodiscard]] bool left_behind(const std::string& device) {
    const remora::detail::MutexLock lock{mutex_};
    return device != device_ && !std::exchange(left_behind_, true);
  }

 private:
  mutable remora::detail::Mutex mutex_;
  std::weak_ptr<MemoryDomain> domain_ REMORA_GUARDED_BY(mutex_);
  std::string device_ REMORA_GUARDED_BY(mutex_);
  bool left_behind_ REMORA_GUARDED_BY(mutex_) = false;
};

}  // namespace remora::transport
