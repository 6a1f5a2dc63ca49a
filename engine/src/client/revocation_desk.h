#pragma once

/// Grants of a session that the server takes back: its regions are told, so that nothing new of
/// them begins; when nothing of them is in flight any more, the server is.

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include <remora/result.h>

#include "client/operation.h"
#include "support/clock.h"
#include "support/event_loop.h"
#include "support/unique_fd.h"

namespace remora::detail {

class LaneDriver;
class RegionCore;
class SessionCore;

/// Thread-safe, unless said otherwise.
class RevocationDesk {
 public:
  RevocationDesk(SessionCore& session, EventLoop& loop) noexcept : session_{session}, loop_{loop} {}
  ~RevocationDesk();
  RevocationDesk(const RevocationDesk&) = delete;
  RevocationDesk& operator=(const RevocationDesk&) = delete;

  void add(std::uint64_t grant_id, const std::shared_ptr<RegionCore>& region);
  void remove(std::uint64_t grant_id) noexcept;

  /// The server takes a grant back, and waits to be told that event `event_id` is done. False: it
  /// does not wait, though it should, and there are too many. The loop's thread, or whoever ends
  /// the session.
  [[nodiscard]] bool revoking(std::uint64_t event_id, std::uint64_t grant_id, Reason reason);
  /// Why the server has refused an operation, or kNone. Blocks, for 300 ms at most, where the
  /// server has to be asked.
  Reason why_refused(const OperationRecord& operation) noexcept;

 private:
  /// Taken back, and not acknowledged.
  struct Pending {
    std::uint64_t event_id;
    std::weak_ptr<RegionCore> region;
    Deadline look_from = Deadline::max();  ///< at the lanes
  };
  static constexpr std::size_t kUnknownMost = 64;
  /// A server says one thing at a time.
  static constexpr std::size_t kPendingMost = 64;

  std::shared_ptr<RegionCore> region_of(const OperationRecord& operation);
  [[nodiscard]] bool ready(Pending& pending) const;
  void on_timer();
  Status start_timer();

  SessionCore& session_;
  EventLoop& loop_;
  std::mutex mutex_;                                            // what follows
  std::map<std::uint64_t, std::weak_ptr<RegionCore>> regions_;  ///< by grant
  /// Taken back before they were known here: their opening is under way.
  std::map<std::uint64_t, Reason> unknown_;
  std::vector<Pending> pending_;
  UniqueFd timer_;
  EventLoop::Token watch_ = 0;
};

}  // namespace remora::detail
