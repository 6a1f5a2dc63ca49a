#pragma once

/// A grant as the lanes, and the part of a session that revokes grants, know it.

#include <atomic>
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
  RevocableGrant() noexcept : serial_{next_serial()} {}
  RevocableGrant(const RevocableGrant&) = delete;
  RevocableGrant& operator=(const RevocableGrant&) = delete;

  /// Unlike grant_id(), no other grant of this process has it, of any server and at any time. Never
  /// 0. See MappedAccess.
  [[nodiscard]] std::uint64_t serial() const noexcept { return serial_; }
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

 private:
  static std::uint64_t next_serial() noexcept {
    static std::atomic<std::uint64_t> last{0};
    return last.fetch_add(1, std::memory_order_relaxed) + 1;
  }
  const std::uint64_t serial_;
};

}  // namespace remora::detail
