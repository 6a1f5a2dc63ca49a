#pragma once

/// Grants of a session that the server takes back: its regions are told, so that nothing new of
/// them begins; when nothing of them is in flight any more, the server is.

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include <remora/mutex.h>
#include <remora/result.h>

#include "base/clock.h"
#include "base/event_loop.h"
#include "base/unique_fd.h"
#include "client/datapath/operation.h"
#include "transport/wire_extent.h"

namespace remora::detail {

class LaneDriver;
class RegionGrant;
class SessionCore;

/// Thread-safe, unless said otherwise.
class RevocationTracker {
 public:
  RevocationTracker(SessionCore& session, EventLoop& loop) noexcept
      : session_{session}, loop_{loop} {}
  ~RevocationTracker();
  RevocationTracker(const RevocationTracker&) = delete;
  RevocationTracker& operator=(const RevocationTracker&) = delete;

  void add(std::uint64_t grant_id, const std::shared_ptr<RegionGrant>& region);
  void remove(std::uint64_t grant_id) noexcept;

  /// The server takes a grant back, and waits on `connection` to be told that event `event_id` is
  /// done. False: it does not wait, though it should, and there are too many. The loop's thread.
  [[nodiscard]] bool revoking(std::uint64_t connection, std::uint64_t event_id,
                              std::uint64_t grant_id, Reason reason);
  /// An event that asks for nothing is acknowledged, as soon as there is room for that. False: as
  /// revoking(). The loop's thread.
  [[nodiscard]] bool seen(std::uint64_t connection, std::uint64_t event_id);
  /// Whether everything the server has said of grants is acknowledged.
  [[nodiscard]] bool idle() const;
  /// The grants that are held, for a server to which the client comes back: it gives up all others.
  /// At most so many that their numbers take `max_bytes` in a message; the others are revoked.
  std::vector<std::uint64_t> come_back(std::size_t max_bytes);
  /// Where the grants lie that are held and have not been taken back.
  struct Extents {
    std::uint64_t grant_id;
    std::vector<transport::WireExtent> extents;
  };
  /// Copies: the caller never becomes the last owner of a grant.
  [[nodiscard]] std::vector<Extents> held_extents() const;
  /// The server has taken the grant back, as it says in an answer.
  void mark(std::uint64_t grant_id, Reason reason) noexcept;
  /// Why the grant of an operation was taken back, or kNone. Waits for nothing, and takes no lock
  /// under which a lane is taken: for callers that have a lane.
  [[nodiscard]] Reason revoked(const OperationRecord& operation) const noexcept;
  /// Why the server has refused an operation, or kNone. Blocks, for 300 ms at most, where the
  /// server has to be asked: never with a lane taken.
  Reason why_refused(const OperationRecord& operation) noexcept;

 private:
  /// Taken back, and not acknowledged.
  struct Pending {
    std::uint64_t connection;
    std::uint64_t event_id;
    std::weak_ptr<RegionGrant> region;
    Deadline look_from = Deadline::max();  ///< at the lanes
  };
  struct Held {
    RegionGrant* region;  ///< until remove(), by which its end begins
    std::weak_ptr<RegionGrant> weak;
  };
  static constexpr std::size_t kMaxUnknown = 64;
  /// A server says one thing at a time.
  static constexpr std::size_t kMaxPending = 64;

  [[nodiscard]] const RegionGrant* owner_of(const OperationRecord& operation) const noexcept
      REMORA_REQUIRES(mutex_);
  [[nodiscard]] Reason known_of(std::uint64_t grant_id) const noexcept;
  [[nodiscard]] bool ready(Pending& pending) const;
  [[nodiscard]] bool settled(Pending& pending) const;
  [[nodiscard]] bool keep(Pending pending);
  void on_timer();
  Status start_timer() REMORA_REQUIRES(mutex_);

  SessionCore& session_;
  EventLoop& loop_;
  /// What follows. Taken with a lane taken, never the other way round.
  mutable Mutex mutex_;
  std::map<std::uint64_t, Held> regions_ REMORA_GUARDED_BY(mutex_);  ///< by grant
  /// Taken back before they were known here: their opening is under way.
  std::map<std::uint64_t, Reason> unknown_ REMORA_GUARDED_BY(mutex_);
  std::vector<Pending> pending_ REMORA_GUARDED_BY(mutex_);
  std::size_t looked_at_ REMORA_GUARDED_BY(mutex_) = 0;  ///< of those, by on_timer() at this moment
  UniqueFd timer_ REMORA_GUARDED_BY(mutex_);
  EventLoop::Token watch_ REMORA_GUARDED_BY(mutex_) = 0;
};

}  // namespace remora::detail
