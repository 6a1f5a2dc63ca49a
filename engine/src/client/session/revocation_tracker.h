#pragma once

/// The grants of a session that the server revokes. First the region is told, so that no new
/// operation of the grant begins; once none is in flight, the server gets its acknowledgement.

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
#include "client/datapath/revocable_grant.h"

namespace remora::detail {

class SessionCore;

/// Thread-safe, unless said otherwise.
class RevocationTracker {
 public:
  RevocationTracker(SessionCore& session, EventLoop& loop) noexcept
      : session_{session}, loop_{loop} {}
  ~RevocationTracker();
  RevocationTracker(const RevocationTracker&) = delete;
  RevocationTracker& operator=(const RevocationTracker&) = delete;

  void add(const std::shared_ptr<RevocableGrant>& grant);
  void remove(const RevocableGrant& grant) noexcept;

  /// The server revokes a grant, and waits on `connection` for the acknowledgement of event
  /// `event_id`. False: too many events are not acknowledged, so this one is not. By the control
  /// thread.
  [[nodiscard]] bool on_revoking(std::uint64_t connection, std::uint64_t event_id,
                                 std::uint64_t grant_id, Reason reason);
  /// Acknowledges an event that asks for nothing, as soon as there is room. False: as
  /// on_revoking(). By the control thread.
  [[nodiscard]] bool acknowledge(std::uint64_t connection, std::uint64_t event_id);
  /// Whether all events about grants are acknowledged.
  [[nodiscard]] bool idle() const;
  /// The held grants, for a hello that resumes the session: the server gives up all others. At most
  /// so many that their numbers take `max_bytes` in a message; the others are revoked.
  std::vector<std::uint64_t> grants_to_resume(std::size_t max_bytes);
  /// The held grants that are not revoked. Copies: the caller never becomes the last owner of a
  /// grant.
  [[nodiscard]] std::vector<HeldGrant> held_grants() const;
  /// The server has revoked the grant, as it says in an answer.
  void set_revoked(std::uint64_t grant_id, Reason reason) noexcept;
  /// Why the grant of an operation was revoked, or kNone. Waits for nothing, and takes no lock
  /// under which a lane is taken: for callers that have a lane.
  [[nodiscard]] Reason revoked(const OperationRecord& operation) const noexcept;
  /// Why the server has refused an operation, or kNone. Blocks for at most 300 ms if it has to ask
  /// the server: never call it with a lane taken.
  Reason why_refused(const OperationRecord& operation) noexcept;

 private:
  /// A revoked grant that is not acknowledged.
  struct Pending {
    std::uint64_t connection;
    std::uint64_t event_id;
    std::weak_ptr<RevocableGrant> grant;
    Deadline look_from = Deadline::max();  ///< when to look at the lanes
  };
  struct Held {
    RevocableGrant* grant;  ///< valid until remove(), which its destructor calls
    std::weak_ptr<RevocableGrant> weak;
  };
  static constexpr std::size_t kMaxUnknown = 64;
  /// A server sends few events at a time.
  static constexpr std::size_t kMaxPending = 64;

  [[nodiscard]] const RevocableGrant* owner_of(const OperationRecord& operation) const noexcept
      REMORA_REQUIRES(mutex_);
  [[nodiscard]] Reason known_of(std::uint64_t grant_id) const noexcept;
  [[nodiscard]] bool ready(Pending& pending) const;
  [[nodiscard]] bool settled(Pending& pending) const;
  [[nodiscard]] bool keep(Pending pending);
  void on_timer();
  Status start_timer() REMORA_REQUIRES(mutex_);

  SessionCore& session_;
  EventLoop& loop_;
  /// Guards the members that follow. Locked with a lane taken, never the other way round.
  mutable Mutex mutex_;
  std::map<std::uint64_t, Held> grants_ REMORA_GUARDED_BY(mutex_);  ///< by grant
  /// Grants that were revoked before they were known here: they are being opened.
  std::map<std::uint64_t, Reason> unknown_ REMORA_GUARDED_BY(mutex_);
  std::vector<Pending> pending_ REMORA_GUARDED_BY(mutex_);
  std::size_t looked_at_ REMORA_GUARDED_BY(mutex_) = 0;  ///< of those, by on_timer() now
  UniqueFd timer_ REMORA_GUARDED_BY(mutex_);
  EventLoop::Token watch_ REMORA_GUARDED_BY(mutex_) = 0;
};

}  // namespace remora::detail
