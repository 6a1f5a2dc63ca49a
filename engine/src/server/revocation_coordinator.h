#pragma once

/// Who has which region open, and taking that back.
///
/// Taking a region's grants back is asked of their clients first: each is told, stops using its
/// grant and acknowledges. What has not been acknowledged within `limits.revoke_grace` goes anyway.
/// Meanwhile, whatever else wants the region waits for its turn here: the worker never sleeps.

#include <chrono>
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

/// Worker only, but for timer().
class RevocationCoordinator {
 public:
  using Job = std::function<void()>;
  /// How many grants are still there, though all should be gone: those that nobody can take back.
  using Then = std::function<void(std::size_t left)>;
  /// What becomes of a mapped grant (shm) whose client does not stop: nobody can take that back.
  enum class Mapped : std::uint8_t {
    kLeave,  ///< it stays, and is reported: the memory goes on to be used
    kDrop    ///< it goes from the books: nobody else will get this memory
  };

  explicit RevocationCoordinator(std::chrono::nanoseconds grace) noexcept : grace_{grace} {}

  /// Before any revocation. Errors: kSystem.
  Status open() { return timer_.open(); }
  /// Readable when tick() has something to do; the control thread takes that.
  [[nodiscard]] const TimerFd& timer() const noexcept { return timer_; }

  /// `session` has a grant of the region, until gone().
  void opened(const RegionEntry& region, ServerSession& session, std::uint64_t grant_id);
  /// Closed, taken back, or its session has ended.
  void gone(const RegionEntry& region, const ServerSession& session, std::uint64_t grant_id);

  /// What the session of that id had open is `session`'s from now on.
  void moved(std::uint64_t session_id, ServerSession& session);
  /// Some session has no client any more, and is kept: nobody waits for it to agree to a
  /// revocation, but for as long as its process may reach what it has mapped.
  void look_at_alone();

  /// Runs `job` when no revocation of the region is under way and all that came before has had its
  /// turn: at once, if so.
  void in_turn(const std::shared_ptr<RegionEntry>& region, Job job);
  /// Takes all grants of the region back, which are told `reason`; then calls `then`. In its turn.
  void revoke_all(const std::shared_ptr<RegionEntry>& region, Reason reason, Mapped mapped,
                  Then then);
  /// Takes back what was not acknowledged in time.
  void tick();

 private:
  using Holder = std::pair<std::uint64_t, std::uint64_t>;  ///< session, grant
  struct Revocation {
    Reason reason;
    Mapped mapped;
    Deadline until;
    Then then;
  };
  struct Books {
    std::shared_ptr<RegionEntry> region;  ///< only while something is under way or waits
    std::map<Holder, ServerSession*> holders;
    std::unique_ptr<Revocation> under_way;
    std::deque<Job> waiting;
    bool starting = false;  ///< holders are being told: not yet over, though none may be left
    bool turning = false;   ///< those that waited have their turns
    [[nodiscard]] bool free() const noexcept {
      return under_way == nullptr && waiting.empty() && !turning;
    }
  };
  [[nodiscard]] static bool may_force(const ServerSession& session, Mapped mapped) noexcept;
  [[nodiscard]] static bool waits_for_exit(const Books& books) noexcept;
  void finish(const RegionEntry& region);
  void take_turns(const RegionEntry& region);
  void set_timer();

  std::chrono::nanoseconds grace_;
  std::unordered_map<const RegionEntry*, Books> books_;
  TimerFd timer_;
};

}  // namespace remora::detail
