#pragma once

/// The sessions of a server by their ids: attached ones, which have a connection, and those that
/// are kept for their clients to come back.

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <remora/config/server_config.h>
#include <remora/mutex.h>
#include <remora/result.h>

#include "base/clock.h"
#include "base/event_loop.h"
#include "protocol/messages.h"
#include "server/client_registry.h"
#include "server/running_limits.h"
#include "server/server_metrics.h"

namespace remora::detail {

class ServerSession;

/// Its lock is held for no call that waits. Thread-safe.
class SessionTable {
 public:
  using Session = std::shared_ptr<ServerSession>;
  using SessionEnd = ServerMetrics::SessionEnd;

  /// All outlive the table.
  SessionTable(const config::ServerConfig& config, const RunningLimits& limits,
               const ServerMetrics& metrics);
  ~SessionTable();
  SessionTable(const SessionTable&) = delete;
  SessionTable& operator=(const SessionTable&) = delete;

  /// A session that is taken out of the table, and the work that is left for it.
  struct Ending {
    Session session;
    EventLoop::Token watch = 0;  ///< of its connection; 0: none
    bool kept = false;           ///< it stays in the table for its client to come back
    /// A session that was kept and gives its place to this one: to be released.
    Session displaced;
  };

  void attach(Session session, EventLoop::Token watch);
  [[nodiscard]] Session find(std::uint64_t id) const;
  /// The watch of the session's connection, which the caller is to drop. 0: the session is not
  /// attached, or has none any more.
  EventLoop::Token take_watch(const ServerSession& session);
  /// Takes an attached session out, and keeps it where its client may come back. `only`: unless the
  /// id is another session's by now. None: there is no such session, or, of kNoHello, it has been
  /// admitted meanwhile.
  std::optional<Ending> take(std::uint64_t id, SessionEnd why, const ServerSession* only);
  [[nodiscard]] std::vector<Ending> take_all();
  [[nodiscard]] Session find_kept(std::uint64_t id) const;
  /// Takes out a session that is kept. False: it is not.
  bool take_kept(const ServerSession& session);
  /// Takes out all that are kept; from now on none is.
  [[nodiscard]] std::vector<Session> take_all_kept();
  /// Takes out those that have been kept for as long as they may be. `behind`: clients wait for the
  /// server to let them come back, and theirs may be among the sessions: these are kept for longer
  /// then, at most kMaxBehind.
  [[nodiscard]] std::vector<Session> take_lapsed(Clock::time_point now, bool behind);
  static constexpr std::chrono::seconds kMaxBehind{60};
  /// The time in which the clients may come back begins at `now`.
  void renew_kept(Clock::time_point now);
  /// From now on no session that ends is kept.
  void stop_keeping();

  /// A session that its client resumes, taken out of the table.
  struct Claimed {
    Session session;             ///< null: there is none that the client may resume
    EventLoop::Token watch = 0;  ///< of its connection; 0: none
    bool too_often = false;      ///< it is to be ended instead
  };
  /// `by` is the client's new session, and is admitted before the other one is taken out. Errors:
  /// those of admit().
  Result<Claimed> claim(const control::Resume& resume, const ServerSession& by);
  /// The attached session `id` has the id `resumed` from now on.
  void rename(std::uint64_t id, std::uint64_t resumed);
  /// The session's client has said, or proven, its name; once more changes nothing. Errors:
  /// kLimitExceeded (limits.sessions_max); kConnectionLost: it has ended meanwhile;
  /// kConnectionRefused: its client is no longer one of the server's.
  Status admit(const ServerSession& session);

  /// The present clients.
  [[nodiscard]] std::shared_ptr<const ClientRegistry> clients() const;
  struct Removed {
    std::vector<Ending> attached;
    std::vector<Session> kept;
  };
  /// Takes out the sessions of clients, or keys, that the new registry does not have.
  Removed set_clients(std::shared_ptr<const ClientRegistry> clients);

  /// Ids of sessions whose clients have not finished the handshake within
  /// limits.handshake_timeout.
  [[nodiscard]] std::vector<std::uint64_t> late(Clock::time_point now) const;
  /// Sessions whose clients were silent for longer than limits.session_lease. Silence before
  /// `since` does not count.
  [[nodiscard]] std::vector<Session> silent(Clock::time_point now, Clock::time_point since) const;

  /// At most `max` attached sessions, in no order.
  [[nodiscard]] std::vector<Session> some(std::size_t max) const;
  [[nodiscard]] std::vector<Session> all() const { return some(SIZE_MAX); }
  /// Those that wait for their clients to come back.
  [[nodiscard]] std::vector<Session> kept() const;
  /// At most `max` attached sessions with their ids as text, in the order of that: those after
  /// `after` alone.
  [[nodiscard]] std::vector<std::pair<std::string, Session>> list(std::string_view after,
                                                                  std::size_t max) const;
  /// At most `max` sessions whose clients are admitted, also those that are kept, in the order of
  /// their ids: those with an id above `after` alone.
  [[nodiscard]] std::vector<Session> page(std::uint64_t after, std::size_t max) const;
  /// Attached sessions.
  [[nodiscard]] std::size_t size() const;
  /// Attached sessions whose clients are admitted.
  [[nodiscard]] std::size_t admitted_count() const;
  /// Sessions that are out of the table, and that the worker has not released yet.
  [[nodiscard]] std::size_t ending_count() const;

  /// For ServerSession: an object is made or destroyed.
  void count_made() noexcept { living_.fetch_add(1); }
  void count_destroyed() noexcept { living_.fetch_sub(1); }

 private:
  struct Attached {
    Session session;
    EventLoop::Token watch = 0;
    bool admitted = false;
  };
  struct Kept {
    Session session;
    Deadline until;
  };
  using Sessions = std::unordered_map<std::uint64_t, Attached>;
  using KeptSessions = std::unordered_map<std::uint64_t, Kept>;

  [[nodiscard]] Ending take_locked(Sessions::iterator at) REMORA_REQUIRES(mutex_);
  void keep(Ending& ending) REMORA_REQUIRES(mutex_);
  [[nodiscard]] KeptSessions::iterator next_to_give_way() REMORA_REQUIRES(mutex_);
  Status admit_locked(const ServerSession& session, std::size_t leaving) REMORA_REQUIRES(mutex_);
  void show_kept() const REMORA_REQUIRES(mutex_);

  const config::ServerConfig& config_;
  const RunningLimits& limits_;
  const ServerMetrics& metrics_;
  std::atomic<std::size_t> living_{0};  ///< ServerSession objects
  mutable Mutex mutex_;
  Sessions attached_ REMORA_GUARDED_BY(mutex_);
  KeptSessions kept_ REMORA_GUARDED_BY(mutex_);
  std::size_t admitted_ REMORA_GUARDED_BY(mutex_) = 0;  ///< of attached_
  bool keeps_ REMORA_GUARDED_BY(mutex_) = true;
  /// With the same lock as the sessions: each admitted session has a client of this registry.
  std::shared_ptr<const ClientRegistry> clients_ REMORA_GUARDED_BY(mutex_);
};

}  // namespace remora::detail
