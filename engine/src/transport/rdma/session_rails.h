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
#include <string>
#include <string_view>
#include <vector>

#include <remora/mutex.h>
#include <remora/result.h>
#include <remora/verbs/memory_region.h>
#include <remora/verbs/protection_domain.h>

#include "transport/grant.h"
#include "transport/rdma/grant_domain.h"

namespace remora::transport::rdma {

/// Goes from connection to connection with its session. Thread-safe.
class SessionRails {
 public:
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

/// One grant. Used by one thread at a time.
class RailGrant final : public GrantHandle {
 public:
  /// Without any registration yet. `move`: see SessionRails::next_move().
  RailGrant(const GrantRequest& request, std::uint64_t move);
  ~RailGrant() override;
  RailGrant(const RailGrant&) = delete;
  RailGrant& operator=(const RailGrant&) = delete;

  /// Whether register_on() has registered the memory there.
  [[nodiscard]] bool is_on(const verbs::Device& device) const noexcept;
  /// Registers the memory there, unless that is done. Without the right to atomics on a device that
  /// is not the region's atomic domain. **Blocks** while pages are pinned. Errors: kLimitExceeded,
  /// before the device is asked; those of verbs::MemoryRegion::register_at(). The result of
  /// revoke() covers what an error leaves.
  Status register_on(const SessionRails::Place& place);
  /// The region's extents in its order; their keys are those of the first device.
  [[nodiscard]] std::vector<WireExtent> extents() const;
  /// The key of an extent on the device; 0: the grant has none there.
  [[nodiscard]] std::uint32_t key_on(const verbs::Device& device,
                                     std::size_t extent) const noexcept;

  /// Errors: kProvider (errno kept).
  Status revoke() noexcept override;
  /// Gives up what is on devices that have gone.
  void leave_device() noexcept override;

 private:
  struct Part {
    verbs::Device device;
    GrantShare share;  ///< given back when the registrations have gone
    std::vector<verbs::MemoryRegion> memory;
  };
  [[nodiscard]] std::uint64_t address_of(const MemoryStretch& stretch) const noexcept;
  /// Deregisters what `part` has. Errors: those of revoke().
  static Status release(Part& part) noexcept;

  const std::vector<MemoryStretch> stretches_;
  const Rights rights_;
  const std::string atomic_domain_;
  const std::uint64_t move_;
  std::vector<Part> parts_;
  /// Devices that have not released a registration of register_on(), and why.
  std::vector<std::pair<verbs::Device, Error>> left_;
};

}  // namespace remora::transport::rdma
