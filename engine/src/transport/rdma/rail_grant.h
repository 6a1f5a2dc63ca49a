#pragma once

#include <cstddef>
#include <cstdint>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include <remora/result.h>
#include <remora/verbs/device.h>
#include <remora/verbs/memory_region.h>

#include "transport/grant.h"
#include "transport/rdma/grant_share.h"
#include "transport/rdma/session_rails.h"

namespace remora::transport::rdma {

/// A grant of a session with rails: the registrations of its memory with the devices of the
/// session's lanes. Used by one thread at a time.
class RailGrant final : public GrantHandle {
 public:
  /// Makes a grant without any registration. `move`: see SessionRails::next_move().
  RailGrant(const GrantRequest& request, std::uint64_t move);
  ~RailGrant() override;
  RailGrant(const RailGrant&) = delete;
  RailGrant& operator=(const RailGrant&) = delete;

  /// Whether register_on() has registered the memory with the device.
  [[nodiscard]] bool is_on(const verbs::Device& device) const noexcept;
  /// Registers the memory at `place`, unless that is done already; without the right to atomics if
  /// the device is not the region's atomic domain. **Blocks** while pages are pinned. Errors:
  /// kLimitExceeded, before the device is asked; kCancelled (GrantRequest::stop); those of
  /// verbs::MemoryRegion::register_at(). The result of revoke() includes registrations that are
  /// left after an error.
  Status register_on(const SessionRails::Place& place);
  /// The region's extents in its order; their keys are those of the first device.
  [[nodiscard]] std::vector<WireExtent> extents() const;
  /// The key of an extent on the device; 0: the grant has no key there.
  [[nodiscard]] std::uint32_t key_on(const verbs::Device& device,
                                     std::size_t extent) const noexcept;

  /// Errors: kProvider (errno kept).
  Status revoke() noexcept override;
  /// Drops the registrations on devices that have gone.
  void leave_device() noexcept override;

 private:
  struct Part {
    verbs::Device device;
    GrantShare share;  ///< given back when the registrations have gone
    std::vector<verbs::MemoryRegion> memory;
  };
  [[nodiscard]] std::uint64_t address_of(const MemoryStretch& stretch) const noexcept;
  /// Deregisters the memory of `part`. Errors: those of revoke().
  static Status release(Part& part) noexcept;

  const std::vector<MemoryStretch> stretches_;
  const Rights rights_;
  const std::string atomic_domain_;
  const std::uint64_t move_;
  const std::stop_token stop_;
  std::vector<Part> parts_;
  /// The devices that have not released a registration of register_on(), each with the reason.
  std::vector<std::pair<verbs::Device, Error>> left_;
};

}  // namespace remora::transport::rdma
