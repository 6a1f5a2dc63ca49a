#include "transport/rdma/registration_hold.h"

#include <utility>

#include <remora/mutex.h>

namespace remora::transport::rdma {

std::vector<WireExtent> RegistrationHold::extents() const {
  GrantDomain::Entry& entry = *entry_;
  const remora::detail::MutexLock lock{entry.mutex};
  return entry.extents;
}

std::shared_ptr<GrantShare> RegistrationHold::share() const {
  GrantDomain::Entry& entry = *entry_;
  const remora::detail::MutexLock lock{entry.mutex};
  return entry.share;
}

RegistrationHold& RegistrationHold::operator=(RegistrationHold&& other) noexcept {
  if (this == &other) return *this;
  (void)release();
  domain_ = std::move(other.domain_);
  entry_ = std::move(other.entry_);
  return *this;
}

Status RegistrationHold::release() noexcept {
  if (entry_ == nullptr) return {};
  const std::shared_ptr<GrantDomain::Entry> entry = std::exchange(entry_, nullptr);
  return domain_->release(entry);
}

}  // namespace remora::transport::rdma
