#pragma once

/// The keys of a session's grants.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <remora/result.h>

#include "base/clock.h"
#include "client/session/control_channel.h"
#include "client/session/revocation_tracker.h"
#include "protocol/messages.h"
#include "transport/client_endpoint.h"
#include "transport/rkey_table.h"
#include "transport/wire_extent.h"

namespace remora::detail {

class SessionCore;

/// The keys of a session's grants. If a server has a key for each lane, the keys end with the
/// lanes. So operations carry tokens instead of keys (transport/rkey_table.h): operations that wait
/// while the session is interrupted then use the keys of the next lanes.
///
/// The first hello makes the table, which stays from then on. Its entries are set before an
/// operation uses them, and renewed while no lane posts. The session owns it. Thread-safe, unless a
/// function says otherwise.
class GrantKeys {
 public:
  explicit GrantKeys(SessionCore& session) noexcept : session_{session} {}
  GrantKeys(const GrantKeys&) = delete;
  GrantKeys& operator=(const GrantKeys&) = delete;

  /// Sets whether the server has a key for each lane, from its Welcome. `again`: the Welcome of a
  /// resumed session. Errors: kConnectionLost with kLapsed: it differs from the first Welcome;
  /// kOutOfMemory.
  Status agree(bool by_lane, bool again);
  /// The extents of the grant that was opened on `connection`. `keys` receives a key for each lane
  /// and extent, or none. Errors: kProtocol; kConnectionLost; those of SessionCore::call().
  Result<std::vector<transport::WireExtent>> fetch_extents(const control::OpenReply& opened,
                                                           std::uint64_t connection,
                                                           Deadline deadline,
                                                           transport::LaneKeys& keys);
  /// Returns the grant with tokens instead of its keys. The tokens are released with the grant.
  /// Errors: kLimitExceeded.
  Result<transport::AttachedGrant> with_tokens(transport::AttachedGrant grant,
                                               const transport::LaneKeys& keys);
  /// Attaches all grants of the session again, at a server process that has the memory of the
  /// process before. The reconnector calls it when there are lanes again. A grant that has ended
  /// meanwhile is revoked here; the others stay. Errors: kConnectionLost, kTimedOut, kProtocol.
  Status reattach();
  /// Gets new keys for all grants of the session, for several at a time. The reconnector calls it
  /// when there are lanes again and no request is posted yet. A grant that gets no keys is revoked,
  /// here and at the server; the others stay. Errors: kConnectionLost, kTimedOut, kProtocol.
  Status renew();

 private:
  [[nodiscard]] std::size_t lane_count() const noexcept;
  [[nodiscard]] bool has_lane_keys(const control::Extent& extent) const noexcept;
  /// Checks an extent that the server has given again. Errors: kProtocol; kConnectionLost: a device
  /// of the server has no room for the grant, and the next connection does not use that device.
  [[nodiscard]] Status check_renewed(const transport::WireExtent& have,
                                     const control::Extent& extent);
  /// Only if has_lane_keys(extent).
  void set_lane_keys(std::uint32_t token, const control::Extent& extent) noexcept;
  using Step = std::function<Status(const HeldGrant& grant)>;
  using Page = Result<ControlChannel::Answer>;
  /// Calls `step` for the grant, and again until `patient_until` when a device has no resources. A
  /// grant for which it fails is revoked, here and at the server. Errors: those of renew().
  Status carry_out(const Step& step, const HeldGrant& grant, Deadline patient_until);
  Status reattach_one(const HeldGrant& grant);
  Status renew_together(std::span<const HeldGrant> grants, Deadline patient_until);
  /// `first`: the first page of the grant's extents, if it has been requested already.
  Status renew_keys_of(const HeldGrant& grant, std::optional<Page> first);
  /// The time for the new keys of one grant.
  [[nodiscard]] Clock::duration renew_time(const HeldGrant& grant) const noexcept;

  SessionCore& session_;
  std::shared_ptr<transport::RkeyTable> table_;  ///< null: one key for all lanes
};

}  // namespace remora::detail
