#pragma once

/// The server's side of a session whose lanes go over several devices: a protection domain on each
/// of them, and grants that are registered with each.
///
/// The registrations of one grant have the same address on all devices, and another key on each. No
/// other grant of the session has that address, so a request that is posted late with a given-up
/// key reaches nothing. An operation that waits while its client connects over another device keeps
/// its address.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <remora/mutex.h>
#include <remora/result.h>
#include <remora/verbs/protection_domain.h>

#include "transport/grant.h"
#include "transport/rdma/grant_share.h"

namespace remora::transport::rdma {

/// A session keeps its object from connection to connection. Thread-safe.
class SessionRails {
 public:
  /// User addresses are below 2^48 on every processor for which Linux supports RDMA.
  static constexpr unsigned kAddressBits = 48;
  /// A device and the session's domain there.
  struct Place {
    verbs::ProtectionDomain domain;
    GrantBudgets budgets;  ///< the budgets of the device
  };

  /// The session's place on `device`, made now if there was none. Errors: those of
  /// Device::allocate_domain(); kConnectionLost: retired.
  Result<Place> place_on(const verbs::Device& device, const GrantBudgets& budgets);
  /// The places on devices that have not gone.
  [[nodiscard]] std::vector<Place> places() const;
  [[nodiscard]] bool any_gone() const;
  /// Drops the domains on devices that have gone.
  void leave_gone() noexcept;
  /// A key in a domain of the session could not be revoked: no lane is made in its domains any
  /// more, and no other connection resumes the session. Idempotent.
  void retire() noexcept;
  [[nodiscard]] bool retired() const;
  /// A number from which one more grant gets its addresses; the first is 1.
  [[nodiscard]] std::uint64_t next_move() noexcept;
  /// The number that belongs to the address which the request has from the previous process
  /// (GrantRequest::address); next_move() returns greater numbers from then on. Empty: no number
  /// has that address.
  [[nodiscard]] std::optional<std::uint64_t> keep_move(const GrantRequest& request) noexcept;

 private:
  mutable remora::detail::Mutex mutex_;
  std::vector<Place> places_ REMORA_GUARDED_BY(mutex_);
  std::uint64_t moves_ REMORA_GUARDED_BY(mutex_) = 0;
  bool retired_ REMORA_GUARDED_BY(mutex_) = false;
};

}  // namespace remora::transport::rdma
