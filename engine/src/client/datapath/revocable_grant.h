#pragma once

/// A grant as the lanes, and the part of a session that revokes grants, know it.

#include <cstdint>
#include <vector>

#include <remora/result.h>

#include "client/datapath/operation.h"
#include "transport/wire_extent.h"

namespace remora::detail {

/// A grant that the server may revoke. Any thread may call its functions.
class RevocableGrant {
 public:
  virtual ~RevocableGrant() = default;
  RevocableGrant() = default;
  RevocableGrant(const RevocableGrant&) = delete;
  RevocableGrant& operator=(const RevocableGrant&) = delete;

  [[nodiscard]] virtual std::uint64_t grant_id() const noexcept = 0;
  /// The extents, in the region's order.
  [[nodiscard]] virtual const std::vector<transport::WireExtent>& extents() const noexcept = 0;
  /// Whether a checked operation of this session is of this grant.
  [[nodiscard]] virtual bool owns(const OperationRecord& operation) const noexcept = 0;
  /// The server revokes the grant: from now on every operation is refused before it reaches a lane.
  virtual void revoke(Reason reason) noexcept = 0;
  /// Why the grant was revoked, or kNone.
  [[nodiscard]] virtual Reason revoked() const noexcept = 0;
  /// After revoke(): has all queues refuse the operations of the grant that they have taken and not
  /// handed over. False: not all queues have been told yet; call it again.
  [[nodiscard]] virtual bool tell_queues() noexcept = 0;
};

}  // namespace remora::detail
