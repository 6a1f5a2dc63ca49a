#pragma once

#include <memory>
#include <utility>
#include <vector>

#include <remora/result.h>

#include "transport/rdma/grant_domain.h"
#include "transport/rdma/grant_share.h"
#include "transport/wire_extent.h"

namespace remora::transport::rdma {

/// One grant's part of a registration, given up on destruction. Movable; used by one thread at a
/// time.
class RegistrationHold {
 public:
  RegistrationHold(RegistrationHold&& other) noexcept = default;
  RegistrationHold& operator=(RegistrationHold&& other) noexcept;
  ~RegistrationHold() { (void)release(); }

  [[nodiscard]] const std::shared_ptr<GrantDomain>& domain() const noexcept { return domain_; }
  [[nodiscard]] std::vector<WireExtent> extents() const;
  [[nodiscard]] std::shared_ptr<GrantShare> share() const;
  /// Gives up the registration; the memory is deregistered if no other grant holds it. Called once.
  /// Errors: kProvider (errno kept): the key works in the domain as long as the domain has lanes.
  Status release() noexcept;

 private:
  friend class GrantDomain;
  RegistrationHold(std::shared_ptr<GrantDomain> domain,
                   std::shared_ptr<GrantDomain::Entry> entry) noexcept
      : domain_{std::move(domain)}, entry_{std::move(entry)} {}

  std::shared_ptr<GrantDomain> domain_;
  std::shared_ptr<GrantDomain::Entry> entry_;  ///< null: moved from, or released
};

}  // namespace remora::transport::rdma
