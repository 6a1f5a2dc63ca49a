#pragma once

/// The keys of a session's grants.

#include <cstdint>
#include <memory>
#include <vector>

#include <remora/result.h>

#include "base/clock.h"
#include "client/session/revocation_tracker.h"
#include "protocol/messages.h"
#include "transport/client_endpoint.h"
#include "transport/rkey_table.h"
#include "transport/wire_extent.h"

namespace remora::detail {

class SessionCore;

/// Where a server has a key for each lane, these end with the lanes. Operations carry tokens
/// instead (transport/rkey_table.h), so that those that wait while a session is interrupted go on
/// by the keys of the lanes that follow.
///
/// The table is made with the first hello and fixed from then on. Its entries are set before an
/// operation that names them, and renewed while no lane is posted to.
class GrantKeys {
 public:
  explicit GrantKeys(SessionCore& session) noexcept : session_{session} {}
  GrantKeys(const GrantKeys&) = delete;
  GrantKeys& operator=(const GrantKeys&) = delete;

  /// As the server said in its Welcome. `again`: to a session that is resumed. Errors:
  /// kConnectionLost with kLapsed: not as before; kOutOfMemory.
  Status agree(bool by_lane, bool again);
  /// Where the grant that was opened on `connection` lies. `keys` gets a key for each lane and
  /// extent, or none. Errors: kProtocol; kConnectionLost; those of SessionCore::call().
  Result<std::vector<transport::WireExtent>> fetch_extents(const control::OpenReply& opened,
                                                           std::uint64_t connection,
                                                           Deadline deadline,
                                                           transport::LaneKeys& keys);
  /// The grant with tokens for its keys, which go back with what the grant holds. Errors:
  /// kLimitExceeded.
  Result<transport::AttachedGrant> with_tokens(transport::AttachedGrant grant,
                                               const transport::LaneKeys& keys);
  /// Gets new keys for all grants that are held. By the reconnector, when there are lanes again and
  /// nothing is posted yet. A grant that gets no keys is revoked, here and at the server; the
  /// others go on. Errors: the connection is not what it has to be.
  Status renew();

 private:
  [[nodiscard]] std::size_t lane_count() const noexcept;
  [[nodiscard]] bool has_lane_keys(const control::Extent& extent) const noexcept;
  /// `extent` has_lane_keys().
  void set_lane_keys(std::uint32_t token, const control::Extent& extent) noexcept;
  Status renew_keys_of(const RevocationTracker::Extents& grant);

  SessionCore& session_;
  std::shared_ptr<transport::RkeyTable> table_;  ///< null: one key for all lanes
};

}  // namespace remora::detail
