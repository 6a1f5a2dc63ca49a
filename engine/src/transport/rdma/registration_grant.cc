#include "transport/rdma/registration_grant.h"

#include <utility>

namespace remora::transport::rdma {

Status RegistrationGrant::register_in(const std::shared_ptr<GrantDomain>& domain,
                                      std::vector<WireExtent>& extents) {
  leave_device();
  auto held = domain->acquire(
      {.extents = stretches_, .rights = rights_, .epoch = epoch_, .stop = stop_}, share_, extents);
  if (!held) {
    if (const Status left = domain->key_left(); !left) left_ = left;
    return held.error();
  }
  share_ = held->share();
  extents = held->extents();
  hold_.emplace(std::move(*held));
  return {};
}

Status RegistrationGrant::revoke() noexcept {
  leave_device();
  return std::exchange(left_, Status{});
}

void RegistrationGrant::leave_device() noexcept {
  if (!hold_) return;
  if (const Status released = hold_->release(); !released) left_ = released;
  hold_.reset();
}

}  // namespace remora::transport::rdma
