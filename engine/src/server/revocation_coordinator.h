#pragma once

/// The grants of each region in all sessions, and their revocation.
///
/// A revocation asks the clients first: each client gets an event, stops using its grant and
/// acknowledges. The server ends a grant whose client does not acknowledge within
/// `limits.revoke_grace`. Meanwhile other requests about the region wait for their turn here: the
/// worker never sleeps.
///
/// An open may continue after its turn, while memory is registered. Opens of a region run at the
/// same time; all other requests about the region wait for them, so a revocation finds each grant
/// that was requested before it.
///
/// Memory of a grant may be registered again at any time, outside of any turn. A revocation ends
/// only after that: a grant that its session gives up meanwhile is revoked then.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>

#include <remora/result.h>

#include "base/clock.h"
#include "base/timer_fd.h"

namespace remora::detail {

class RegionEntry;
class ServerSession;

/// Worker only, except open() and timer().
class RevocationCoordinator {
 public:
  using Job = std::function<void()>;
  /// `left`: the number of grants that still exist, since only their clients can end them (shm).
  using Then = std::function<void(std::size_t left)>;
  /// How a revocation treats a grant that is mapped (shm) and whose client does not stop: the
  /// server cannot undo a mapping.
  enum class Mapped : std::uint8_t {
    kLeave,  ///< the grant stays and is reported: the memory stays in use
    kDrop    ///< the grant is dropped: no other region gets this memory
  };

  explicit RevocationCoordinator(std::chrono::nanoseconds grace) noexcept : grace_{grace} {}
  ~RevocationCoordinator();
  RevocationCoordinator(const RevocationCoordinator&) = delete;
  RevocationCoordinator& operator=(const RevocationCoordinator&) = delete;

  /// Applies to the revocations that begin from now on.
  void set_grace(std::chrono::nanoseconds grace) noexcept { grace_ = grace; }
  /// Called before any revocation. Errors: kSystem.
  Status open() { return timer_.open(); }
  /// Readable when tick() has a revocation to end: then the control thread has the worker call it.
  [[nodiscard]] const TimerFd& timer() const noexcept { return timer_; }

  /// `session` has a grant of the region, until remove_grant().
  void add_grant(const RegionEntry& region, ServerSession& session, std::uint64_t grant_id);
  /// The grant is closed or taken back, or its session has ended.
  void remove_grant(const RegionEntry& region, const ServerSession& session,
                    std::uint64_t grant_id);

  /// The grants of the session `session_id` belong to `session` from now on.
  void move_grants(std::uint64_t session_id, ServerSession& session);
  /// Called when a session is detached: from now on revocations do not wait for its client, unless
  /// its process may still reach memory that it has mapped.
  void stop_waiting_for_detached();

  enum class Turn : std::uint8_t {
    kAlone,  ///< waits for opens, too
    kOpen
  };
  /// Runs `job` when the region has no unfinished revocation and all earlier jobs have had their
  /// turn; at once, if that is so now.
  void run_in_turn(const std::shared_ptr<RegionEntry>& region, Job job, Turn turn = Turn::kAlone);
  /// Called in the region's turn: an open continues until end_open().
  void begin_open(const RegionEntry& region);
  /// The open has become a grant, or has failed. Runs jobs that have waited for it: call it last.
  void end_open(const std::shared_ptr<RegionEntry>& region);
  /// Memory of one of the region's grants is being registered again, until end_renewal().
  void begin_renewal(const RegionEntry& region);
  /// The session has the grant again, or it is revoked. Runs jobs that have waited for it: call it
  /// last.
  void end_renewal(const std::shared_ptr<RegionEntry>& region);
  /// Revokes all grants of the region, whose clients are told `reason`; then calls `then`. Called
  /// in the region's turn.
  void revoke_all(const std::shared_ptr<RegionEntry>& region, Reason reason, Mapped mapped,
                  Then then);
  /// Ends the grants whose revocation was not acknowledged in time.
  void tick();

 private:
  using Holder = std::pair<std::uint64_t, std::uint64_t>;  ///< session, grant
  struct Revocation {
    Reason reason;
    Mapped mapped;
    Deadline until;
    Then then;
    bool forced = false;  ///< `until` is over: the grants were ended that the server can end
  };
  struct Waiting {
    Job job;
    Turn turn;
  };
  struct RegionState {
    std::shared_ptr<RegionEntry> region;  ///< set only while a job waits or an operation runs
    std::map<Holder, ServerSession*> holders;
    std::size_t opens = 0;     ///< unfinished opens
    std::size_t renewals = 0;  ///< unfinished renewals
    std::unique_ptr<Revocation> under_way;
    std::deque<Waiting> waiting;
    bool starting = false;  ///< clients are being told: not over even if no grant is left
    bool turning = false;   ///< the waiting jobs are running
    /// Whether the first waiting job, or a new one if none waits, may run.
    [[nodiscard]] bool admits(Turn turn) const noexcept {
      return under_way == nullptr && (turn == Turn::kOpen || opens == 0);
    }
    /// Whether the present revocation is over.
    [[nodiscard]] bool is_over() const noexcept {
      return under_way != nullptr && !starting && renewals == 0 &&
             (holders.empty() || under_way->forced);
    }
    /// Neither a job nor a grant is left.
    [[nodiscard]] bool unused() const noexcept {
      return holders.empty() && opens == 0 && renewals == 0 && under_way == nullptr &&
             waiting.empty() && !turning;
    }
  };
  [[nodiscard]] static bool may_force(const ServerSession& session, Mapped mapped) noexcept;
  [[nodiscard]] static bool waits_for_exit(const RegionState& state) noexcept;
  void finish(const RegionEntry& region);
  void take_turns(const RegionEntry& region);
  void set_timer();

  std::chrono::nanoseconds grace_;
  std::unordered_map<const RegionEntry*, RegionState> regions_;
  TimerFd timer_;
};

}  // namespace remora::detail
