#pragma once

/// The sessions of the previous process, as long as their clients may return to them.

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <remora/engine/types.h>
#include <remora/mutex.h>

#include "base/clock.h"
#include "protocol/messages.h"
#include "server/warm/kept_catalog.h"

namespace remora::detail {

/// Thread-safe.
class RestoredSessions {
 public:
  RestoredSessions() = default;
  RestoredSessions(const RestoredSessions&) = delete;
  RestoredSessions& operator=(const RestoredSessions&) = delete;

  /// Called before the server accepts clients.
  void add(const std::vector<KeptSession>& sessions, Deadline until);

  /// Takes the session that a client wants to continue; it is not a restored one any more. Empty:
  /// there is no such session, or it belongs to another client. `proven`: by a key.
  std::optional<KeptSession> claim(const control::Resume& resume, const std::string& client_name,
                                   bool proven, TransportKind transport);
  /// The client of a claimed session over shm is about to attach its grants again. A thread of it
  /// may still copy by a grant that it does not get again, so its process counts in
  /// mapping_processes() until returned(), at most until `until`. `process_id`: of the client that
  /// has returned.
  void await_return(KeptSession session, std::uint64_t process_id, Deadline until);
  /// The client no longer uses any grant that it has not got again. If its process is not the one
  /// that had the memory mapped, this tells nothing about that one.
  void returned(std::uint64_t session_id);
  struct Lapsed {
    std::vector<KeptSession> sessions;  ///< those whose time is over
    /// Of these and earlier sessions, those for which no process writes as a client any more.
    std::vector<std::uint64_t> ended;
  };
  /// `behind`: the extra time of the sessions. The state of processes is read at `now`.
  [[nodiscard]] Lapsed take_lapsed(Clock::time_point now, std::chrono::nanoseconds behind = {});
  /// The next process is no longer told that the client of one of Lapsed::sessions may return.
  void gave_up() noexcept;
  /// The server itself was stopped: the sessions have until `until`.
  void renew(Deadline until);
  [[nodiscard]] bool has(std::uint64_t session_id) const;
  [[nodiscard]] std::size_t size() const;
  /// The number of sessions whose clients may return: to this process or, until gave_up(), to the
  /// next one.
  [[nodiscard]] std::size_t awaited() const;

  /// The number of processes that may still write memory that they have mapped from the previous
  /// process (shm): those that have not returned completely, and have not ended. When the time of a
  /// session is over, its process counts only while it is stopped, and then until it has run for
  /// kTimeToNotice: by then it has found its connection ended.
  [[nodiscard]] std::size_t mapping_processes() const;
  static constexpr std::chrono::seconds kTimeToNotice{2};

 private:
  struct Restored {
    KeptSession session;
    Deadline until;
    bool may_return = true;  ///< in returning_: see returned()
  };
  struct LapsedMapping {
    KeptSession session;
    bool noted;  ///< for the next process, until it is in Lapsed::ended
    Clock::time_point runs_since = Clock::time_point::max();
  };
  mutable Mutex mutex_;
  std::map<std::uint64_t, Restored> sessions_ REMORA_GUARDED_BY(mutex_);   ///< by id
  std::map<std::uint64_t, Restored> returning_ REMORA_GUARDED_BY(mutex_);  ///< by id
  std::vector<LapsedMapping> lapsed_mappings_ REMORA_GUARDED_BY(mutex_);
  std::size_t giving_up_ REMORA_GUARDED_BY(mutex_) = 0;  ///< not yet gave_up()
};

}  // namespace remora::detail
