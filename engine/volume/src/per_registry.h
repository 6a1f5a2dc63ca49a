#pragma once

/// Metrics that all volumes of a registry share.

#include <map>
#include <memory>

#include <remora/metrics/registry.h>
#include <remora/mutex.h>

namespace remora::volume::detail {

/// One `Metrics` for each registry, until the registry has ended. Thread-safe.
template <typename Metrics>
class PerRegistry {
 public:
  /// The metrics of `registry`. The first call for a registry makes them, by `make()`, which
  /// returns a shared_ptr.
  template <typename Make>
  std::shared_ptr<Metrics> of(metrics::Registry& registry, const Make& make) {
    const remora::detail::MutexLock lock{mutex_};
    // Of registries that have ended, one of which may have had this address.
    std::erase_if(known_, [](const auto& entry) { return entry.second.registry.expired(); });
    Known& known = known_[&registry];
    if (known.shared == nullptr) known = {registry.weak_from_this(), make()};
    return known.shared;
  }

 private:
  struct Known {
    std::weak_ptr<metrics::Registry> registry;
    std::shared_ptr<Metrics> shared;
  };

  remora::detail::Mutex mutex_;
  std::map<const metrics::Registry*, Known> known_ REMORA_GUARDED_BY(mutex_);
};

}  // namespace remora::volume::detail
