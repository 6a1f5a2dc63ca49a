#pragma once

/// A grant, as the lanes and the session's revocation of grants use it.

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include <remora/engine/types.h>
#include <remora/result.h>

#include "client/datapath/operation_record.h"
#include "transport/wire_extent.h"

namespace remora::detail {

/// The data of a grant that the client sends to the server to get the grant again.
struct HeldGrant {
  std::uint64_t grant_id = 0;
  std::string name{};
  Rights rights = Rights::kNone;
  std::uint64_t size_bytes = 0;
  std::uint64_t incarnation = 0;
  std::uint64_t epoch = 0;
  /// The extents, in the region's order.
  std::vector<transport::WireExtent> extents{};
};

/// A grant that the server may revoke. Owned by its region; thread-safe.
class RevocableGrant {
 public:
  virtual ~RevocableGrant() = default;
  RevocableGrant() noexcept : serial_{next_serial()} {}
  RevocableGrant(const RevocableGrant&) = delete;
  RevocableGrant& operator=(const RevocableGrant&) = delete;

  /// A number that no other grant of this process has or had, unlike grant_id(). Never 0. See
  /// MappedAccess.
  [[nodiscard]] std::uint64_t serial() const noexcept { return serial_; }
  [[nodiscard]] virtual std::uint64_t grant_id() const noexcept = 0;
  /// The extents, in the region's order.
  [[nodiscard]] virtual const std::vector<transport::WireExtent>& extents() const noexcept = 0;
  /// The grant as the server gave it.
  [[nodiscard]] virtual HeldGrant held() const = 0;
  /// Whether a checked operation of this session belongs to this grant.
  [[nodiscard]] virtual bool owns(const OperationRecord& operation) const noexcept = 0;
  /// Called when the server revokes the grant: from now on every operation is refused before it
  /// reaches a lane.
  virtual void revoke(Reason reason) noexcept = 0;
  /// The reason of the revocation, or kNone.
  [[nodiscard]] virtual Reason revoked() const noexcept = 0;
  /// After revoke(): makes all queues refuse operations of the grant that they have taken and not
  /// handed to a lane. False: some queues have not been reached yet; call it again.
  [[nodiscard]] virtual bool tell_queues() noexcept = 0;

 private:
  static std::uint64_t next_serial() noexcept {
    static std::atomic<std::uint64_t> last{0};
    return last.fetch_add(1, std::memory_order_relaxed) + 1;
  }
  const std::uint64_t serial_;
};

}  // namespace remora::detail
