#pragma once

/// Kept registrations of a device's protection domain: verbs::MrCache behind the transport seam.

#include <memory>
#include <string>

#include <remora/verbs/verbs.h>

#include "transport/transport.h"

namespace remora::transport::rdma {

/// A cache that refuses what it cannot keep. Null where changes of mappings are not noticed, and
/// where the registry takes no series of it but for those of another cache: the log says why.
std::shared_ptr<RegistrationCache> make_cache(const verbs::ProtectionDomain& domain,
                                              const RegistrationCache::Options& options);

}  // namespace remora::transport::rdma
