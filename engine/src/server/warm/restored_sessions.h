#pragma once

/// The sessions of the process before, for as long as their clients may come back to them.

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

  /// Before the server accepts clients.
  void add(const std::vector<KeptSession>& sessions, Deadline until);

  /// The session that a client wants to go on with, which is a restored one no more. None: there is
  /// no such session, or the client is not the one that it belongs to. `proven`: by a key.
  std::optional<KeptSession> claim(const control::Resume& resume, const std::string& client_name,
                                   bool proven, TransportKind transport);
  /// The client of a claimed session over shm is about to attach its grants again. A thread of it
  /// may still copy by a grant that it does not get again, so its process counts in
  /// mapping_processes() until returned(), and until `until` at most. `process_id`: of the client
  /// that has come back.
  void await_return(KeptSession session, std::uint64_t process_id, Deadline until);
  /// The client uses no grant any more that it has not got again. Another process than the one that
  /// had the memory mapped says nothing about that one.
  void returned(std::uint64_t session_id);
  struct Lapsed {
    std::vector<KeptSession> sessions;  ///< those whose time is over
    /// Of those and of earlier ones: no process writes any more as a client of them.
    std::vector<std::uint64_t> ended;
  };
  /// `behind`: the time of sessions is over so much later. Processes are looked at as of `now`.
  [[nodiscard]] Lapsed take_lapsed(Clock::time_point now, std::chrono::nanoseconds behind = {});
  /// The next process is not told any more that the client of one of Lapsed::sessions may return.
  void gave_up() noexcept;
  /// The server itself stood still.
  void renew(Deadline until);
  [[nodiscard]] bool has(std::uint64_t session_id) const;
  [[nodiscard]] std::size_t size() const;
  /// Sessions whose clients may come back, to this process, or, until gave_up(), to the next one.
  [[nodiscard]] std::size_t awaited() const;

  /// How many processes may still write memory that the process before has let them map (shm):
  /// those that have not come back whole, and have not ended. When the time of a session is over,
  /// its process counts only while it is stopped, and then until it has run for kTimeToNotice: it
  /// has found its connection ended.
  [[nodiscard]] std::size_t mapping_processes() const;
  static constexpr std::chrono::seconds kTimeToNotice{2};

 private:
  struct Restored {
    KeptSession session;
    Deadline until;
    bool may_return = true;  ///< of returning_: see returned()
  };
  struct LapsedMapping {
    KeptSession session;
    bool noted;  ///< for the next process, until Lapsed::ended has it
    Clock::time_point runs_since = Clock::time_point::max();
  };
  mutable Mutex mutex_;
  std::map<std::uint64_t, Restored> sessions_ REMORA_GUARDED_BY(mutex_);   ///< by id
  std::map<std::uint64_t, Restored> returning_ REMORA_GUARDED_BY(mutex_);  ///< by id
  std::vector<LapsedMapping> lapsed_mappings_ REMORA_GUARDED_BY(mutex_);
  std::size_t giving_up_ REMORA_GUARDED_BY(mutex_) = 0;  ///< taken by take_lapsed(): gave_up()
};

}  // namespace remora::detail
