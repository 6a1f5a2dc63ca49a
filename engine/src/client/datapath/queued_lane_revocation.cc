/// Whether a lane still has operations of a grant that is revoked.

#include "client/datapath/queued_lane_driver.h"
#include "client/datapath/revocable_grant.h"

namespace remora::detail {

bool QueuedLaneDriver::carries(const RevocableGrant& grant) noexcept {
  // The thread that holds the lane may be waiting for this one.
  if (!mutex_.try_lock()) return true;
  collect();
  if (!broken()) {
    progress();
  } else if (!ended_) {
    EndTally tally{metrics_, cells_.recorder()};
    refuse_waiting(tally);
    waiters_.wake();
  }
  bool any = false;
  for (std::uint64_t at = retired_sequence_; at != next_sequence_ && !any;) {
    const Posted& posted = posted_at(at);
    const OperationRecord* operation = posted.operation;
    any = grant.owns(*operation);
    // The operations of a run, or of a joined request, have the same opcode, but not always one
    // region.
    for (std::uint32_t i = 1; i < posted.run_count && !any; ++i) {
      operation = operation->next;
      any = grant.owns(*operation);
    }
    if (posted.joined)
      for_each(posted, [&](const OperationRecord& each) { any = any || grant.owns(each); });
    at += posted.request_count();
  }
  for (const OperationRecord* at = backlog_.first; at != nullptr && !any; at = at->next)
    any = grant.owns(*at);
  leave();
  return any;
}

}  // namespace remora::detail
