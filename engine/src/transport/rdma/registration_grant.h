#pragma once

/// A grant that is a registration, which other grants of the same client may share.

#include <memory>
#include <optional>
#include <stop_token>
#include <utility>
#include <vector>

#include <remora/result.h>

#include "transport/grant.h"
#include "transport/rdma/grant_domain.h"
#include "transport/rdma/grant_share.h"
#include "transport/rdma/registration_hold.h"

namespace remora::transport::rdma {

/// Used by one thread at a time.
class RegistrationGrant final : public GrantHandle {
 public:
  /// Makes a grant without a registration.
  explicit RegistrationGrant(const GrantRequest& request)
      : stretches_{request.extents.begin(), request.extents.end()},
        rights_{request.rights},
        epoch_{request.epoch},
        stop_{request.stop} {}

  /// Has the memory registered in `domain`, instead of the domain that the grant was in. The
  /// addresses of `extents`, which the client holds, stay; empty: the client holds none yet. After
  /// an error `extents` are unchanged, and revoke() says whether a key is left. Errors: those of
  /// GrantDomain::acquire(). **Blocks** as that function does.
  Status register_in(const std::shared_ptr<GrantDomain>& domain, std::vector<WireExtent>& extents);
  [[nodiscard]] bool is_in(const GrantDomain& domain) const noexcept {
    return hold_ && hold_->domain().get() == &domain;
  }
  /// Errors: those of RegistrationHold::release() and GrantDomain::key_left().
  Status revoke() noexcept override;
  void leave_device() noexcept override;

 private:
  const std::vector<MemoryStretch> stretches_;
  const Rights rights_;
  const std::uint64_t epoch_;
  const std::stop_token stop_;
  /// Kept while the device is away: a session must be able to return to its grants.
  std::shared_ptr<GrantShare> share_;
  Status left_;  ///< not ok: a device has not released a registration of this grant
  std::optional<RegistrationHold> hold_;  ///< empty: the grant has left its device, or is revoked
};

}  // namespace remora::transport::rdma
