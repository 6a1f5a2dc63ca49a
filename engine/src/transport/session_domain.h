#pragma once

#include <memory>

#include <remora/mutex.h>

#include "transport/memory_domain.h"

namespace remora::transport {

/// The memory domain of one session. The connections of the session share this object: the first
/// connection sets the domain, and the later ones use it, since the local keys of waiting
/// operations belong to it. Thread-safe.
class SessionDomain {
 public:
  void set(const std::shared_ptr<MemoryDomain>& domain) {
    const remora::detail::MutexLock lock{mutex_};
    domain_ = domain;
  }
  /// Null: no connection has been made, or the session has been destroyed.
  [[nodiscard]] std::shared_ptr<MemoryDomain> get() const {
    const remora::detail::MutexLock lock{mutex_};
    return domain_.lock();
  }

 private:
  mutable remora::detail::Mutex mutex_;
  std::weak_ptr<MemoryDomain> domain_ REMORA_GUARDED_BY(mutex_);
};

}  // namespace remora::transport
