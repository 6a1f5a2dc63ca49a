#include "transport/rdma/registration_grant.h"

namespace remora::transport::rdma {

Status RegistrationGrant::register_in(const std::shared_ptr<GrantDomain>& domain,
                                      std::vector<WireExtent>& extents) {
  leave_device();
  auto held =
      domain->acquire({.extents = stretches_, .rights = rights_, .epoch = epoch_}, share_, extents);
  if (!held) return held.error();
  share_ = held->share();
  extents = held->extents();
  hold_.emplace(std::move(*held));
  return {};
}

Status RegistrationGrant::revoke() noexcept {
  if (!hold_) return {};
  const Status released = hold_->release();
  hold_.reset();
  return released;
}

}  // namespace remora::transport::rdma
