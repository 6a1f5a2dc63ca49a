#pragma once

/// The revocation of grants by the server. First the region is told, so that no new operation of
/// the grant begins. When no operation is in flight, the server gets its acknowledgement.

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include <remora/mutex.h>
#include <remora/result.h>

#include "base/clock.h"
#include "base/event_loop.h"
#include "base/unique_fd.h"
#include "client/datapath/operation_record.h"
#include "client/datapath/revocable_grant.h"

namespace remora::detail {

class SessionCore;

/// The session owns it. Thread-safe, unless a function says otherwise.
class RevocationTracker {
 public:
  RevocationTracker(SessionCore& session, EventLoop& loop) noexcept
      : session_{session}, loop_{loop} {}
  ~RevocationTracker();
  RevocationTracker(const RevocationTracker&) = delete;
  RevocationTracker& operator=(const RevocationTracker&) = delete;

  void add(const std::shared_ptr<RevocableGrant>& grant);
  void remove(const RevocableGrant& grant) noexcept;

  /// The server revokes a grant, and waits on `connection` for the acknowledgement of the event
  /// `event_id`. False: this event cannot be kept, since too many are not acknowledged. The control
  /// thread calls it.
  [[nodiscard]] bool on_revoking(std::uint64_t connection, std::uint64_t event_id,
                                 std::uint64_t grant_id, Reason reason);
  /// Acknowledges an event that needs no action, as soon as there is room. False: as on_revoking().
  /// The control thread calls it.
  [[nodiscard]] bool acknowledge(std::uint64_t connection, std::uint64_t event_id);
  /// Whether all events about grants were acknowledged.
  [[nodiscard]] bool idle() const;
  /// The session's grants, for a hello that resumes the session: the server closes all others. At
  /// most as many as their ids fit into `max_bytes` of a message; the others are revoked.
  std::vector<std::uint64_t> grants_to_resume(std::size_t max_bytes);
  /// The session's grants that are not revoked. Copies, so that the caller never becomes the last
  /// owner of a grant.
  [[nodiscard]] std::vector<HeldGrant> held_grants() const;
  /// The server has revoked the grant, as an answer of it says.
  void set_revoked(std::uint64_t grant_id, Reason reason) noexcept;
  /// Why the grant of an operation was revoked, or kNone. Does not wait, and locks no mutex with
  /// which a lane is taken: for callers that hold a lane.
  [[nodiscard]] Reason revoked(const OperationRecord& operation) const noexcept;
  /// Why the server has refused an operation, or kNone. Blocks at most 300 ms if it has to ask the
  /// server: never call it while holding a lane.
  Reason why_refused(const OperationRecord& operation) noexcept;

 private:
  /// A revoked grant whose event was not acknowledged.
  struct Pending {
    std::uint64_t connection;
    std::uint64_t event_id;
    std::weak_ptr<RevocableGrant> grant;
    Deadline look_from = Deadline::max();  ///< the time from which the lanes are checked
  };
  struct Held {
    RevocableGrant* grant;  ///< valid until remove(), which the grant's destructor calls
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
  /// Guards the members that follow. May be locked while a lane is held; no lane is taken while it
  /// is locked.
  mutable Mutex mutex_;
  std::map<std::uint64_t, Held> grants_ REMORA_GUARDED_BY(mutex_);  ///< by the grant's id
  /// Revoked grants that are not known here yet, since they are being opened.
  std::map<std::uint64_t, Reason> unknown_ REMORA_GUARDED_BY(mutex_);
  std::vector<Pending> pending_ REMORA_GUARDED_BY(mutex_);
  std::size_t looked_at_ REMORA_GUARDED_BY(mutex_) =
      0;  ///< Number of pending_ that on_timer() checks now.
  UniqueFd timer_ REMORA_GUARDED_BY(mutex_);
  EventLoop::Token watch_ REMORA_GUARDED_BY(mutex_) = 0;
};

}  // namespace remora::detail
