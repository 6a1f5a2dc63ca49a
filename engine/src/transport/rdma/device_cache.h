#pragma once

/// Kept registrations of a device's protection domain: verbs::MrCache behind the transport seam.

#include <memory>
#include <string>

#include <remora/verbs/verbs.h>

#include "transport/registration_cache.h"

namespace remora::transport::rdma {

/// The cache of a device that may go and return.
class DeviceCache : public RegistrationCache {
 public:
  /// The device has gone: all registrations are released, those of leases together with their
  /// leases, and the cache gives no lease until arrive(). Waits for calls in progress.
  virtual void leave() noexcept = 0;
  virtual void arrive(const verbs::ProtectionDomain& domain) noexcept = 0;
};

/// A cache that refuses memory that it cannot keep registered, and pins at most a quarter of the
/// memory that the process may lock. Null if changes of mappings cannot be observed: the log says
/// why. Caches of one device in one registry share its series (cache_series.h).
std::shared_ptr<DeviceCache> make_cache(const verbs::ProtectionDomain& domain,
                                        const RegistrationCache::Options& options);

}  // namespace remora::transport::rdma
