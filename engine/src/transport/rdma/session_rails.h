#pragma once

/// The server's side of a session whose lanes go over several devices: a protection domain on each
/// of them, and grants that are registered with each.
///
/// The registrations of one grant have the same address on all devices, and another key on each. No
/// other grant of the session has that address, so that a request which is posted late, with a key
/// that was given up, reaches nothing. An operation that waits while its client connects over
/// another device keeps its address.

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

/// Goes from connection to connection with its session. Thread-safe.
class SessionRails {
 public:
  /// User addresses have no more bits on any processor that Linux has RDMA on.
  static constexpr unsigned kAddressBits = 48;
  /// A device and the session's domain there.
  struct Place {
    verbs::ProtectionDomain domain;
    GrantBudgets budgets;  ///< of the device
  };

  /// The session's place on `device`, made now if there was none. Errors: those of
  /// Device::allocate_domain(); kConnectionLost: retired.
  Result<Place> place_on(const verbs::Device& device, const GrantBudgets& budgets);
  /// Those that there are, but for devices that have gone.
  [[nodiscard]] std::vector<Place> places() const;
  [[nodiscard]] bool any_gone() const;
  /// Gives up the domains on devices that have gone.
  void leave_gone() noexcept;
  /// A key in a domain of the session could not be taken back: no lane is made in them any more,
  /// and the session does not go on over another connection. Idempotent.
  void retire() noexcept;
  [[nodiscard]] bool retired() const;
  /// A number for the addresses of one more grant, from 1.
  [[nodiscard]] std::uint64_t next_move() noexcept;
  /// The number by which the memory of the request has its address (GrantRequest::address), as in
  /// the process before; next_move() returns greater ones from then on. None: it is no such
  /// address.
  [[nodiscard]] std::optional<std::uint64_t> keep_move(const GrantRequest& request) noexcept;

 private:
  mutable remora::detail::Mutex mutex_;
  std::vector<Place> places_ REMORA_GUARDED_BY(mutex_);
  std::uint64_t moves_ REMORA_GUARDED_BY(mutex_) = 0;
  bool retired_ REMORA_GUARDED_BY(mutex_) = false;
};

}  // namespace remora::transport::rdma
