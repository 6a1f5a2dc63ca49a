#pragma once

/// Grants that are type-2 memory windows, for devices whose windows isolate clients: the pool is
/// registered once on a device, without remote rights, in one protection domain for all its
/// sessions; a grant is a window for each of its extents on each lane of its session, bound on the
/// server's queue pair of that lane. A window's key works on its own queue pair only.
///
/// Windows are freed with their grant or with their lane, whichever ends first, and before the
/// queue pair.

#include <cstddef>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <remora/result.h>
#include <remora/verbs/access.h>
#include <remora/verbs/memory_region.h>

#include "base/clock.h"
#include "transport/grant.h"
#include "transport/rdma/budget_share.h"
#include "transport/rdma/leased_memory.h"
#include "transport/rdma/window_lane.h"

namespace remora::transport::rdma {

/// One grant. Used by one thread at a time.
class WindowGrant final : public GrantHandle {
 public:
  /// Makes a grant without windows. Memory that is not in `leased` is registered for this grant.
  /// **Blocks** while that is pinned. Errors: those of LeasedMemory::create().
  [[nodiscard]] static Result<std::unique_ptr<WindowGrant>> create(
      std::shared_ptr<const LeasedMemory> leased, const GrantRequest& request);
  ~WindowGrant() override;
  WindowGrant(const WindowGrant&) = delete;
  WindowGrant& operator=(const WindowGrant&) = delete;

  /// Binds the missing windows on `lanes`, and fills in the keys of all. The grant keeps its share
  /// of the budget while it exists, with lanes or without: a session must be able to return to its
  /// grants, and a client that disconnects makes no room for others. `extents` are those of this
  /// grant, or empty at first. **Blocks** until `deadline`, and a millisecond more for each window.
  /// Errors: kLimitExceeded, before the device is asked; those of WindowLane::bind(). Windows that
  /// were bound before stay. The result of revoke() includes windows that are left after an error.
  Status renew(const WindowLanes& lanes, std::vector<WireExtent>& extents, LaneKeys& keys,
               Deadline deadline);
  /// May be called after an error of renew(). Errors: those of WindowLane::drop().
  Status revoke() noexcept override { return forget_lanes_but({}); }
  void leave_device() noexcept override;
  /// The registered pool that holds the grant's memory; null after leave_device().
  [[nodiscard]] const std::shared_ptr<const LeasedMemory>& leased() const noexcept {
    return leased_;
  }
  /// The request by which to make the grant again, on another LeasedMemory.
  [[nodiscard]] GrantRequest request() const noexcept {
    return {.extents = request_, .rights = asked_};
  }

 private:
  Status forget_lanes_but(const WindowLanes& lanes) noexcept;
  Status reserve(std::size_t lanes);
  WindowGrant(std::shared_ptr<const LeasedMemory> leased, const GrantRequest& request,
              verbs::Access rights)
      : leased_{std::move(leased)},
        request_{request.extents.begin(), request.extents.end()},
        asked_{request.rights},
        rights_{rights} {}

  std::shared_ptr<const LeasedMemory> leased_;
  const std::vector<MemoryStretch> request_;
  const Rights asked_;
  const verbs::Access rights_;
  std::optional<BudgetShare> own_share_;          ///< the share of own_
  std::optional<BudgetShare> own_bytes_share_;    ///< the share of the bytes of own_
  std::vector<verbs::MemoryRegion> own_;          ///< registered for this grant alone
  std::vector<LeasedRange> stretches_;            ///< in the region's order
  std::vector<std::weak_ptr<WindowLane>> lanes_;  ///< lanes that may have windows of this grant
  std::optional<BudgetShare> share_;              ///< of windows: given back when they are freed
  std::size_t lanes_admitted_ = 0;                ///< the lanes that share_ covers
};

}  // namespace remora::transport::rdma
