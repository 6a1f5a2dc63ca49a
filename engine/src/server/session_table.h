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

#include <remora/assert.h>
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

/// No thread holds its lock during a call that waits. Thread-safe.
class SessionTable {
 public:
  using Session = std::shared_ptr<ServerSession>;
  using SessionEnd = ServerMetrics::SessionEnd;

  /// All parameters outlive the table.
  SessionTable(const config::ServerConfig& config, const RunningLimits& limits,
               const ServerMetrics& metrics);
  ~SessionTable();
  SessionTable(const SessionTable&) = delete;
  SessionTable& operator=(const SessionTable&) = delete;

  /// A session that was taken out of the table, and the work that remains for it.
  struct Ending {
    Session session;
    EventLoop::Token watch = 0;  ///< of its connection; 0: none
    bool kept = false;           ///< it stays in the table until its client returns
    /// A kept session that this one displaces: the caller releases it.
    Session displaced;
  };

  void attach(Session session, EventLoop::Token watch);
  [[nodiscard]] Session find(std::uint64_t id) const;
  /// The watch of the session's connection, which the caller drops. 0: the session is not attached,
  /// or has no watch any more.
  EventLoop::Token take_watch(const ServerSession& session);
  /// Takes an attached session out, and keeps it if its client may return. `only`: take it only if
  /// the id still belongs to this session. Empty: there is no such session, or, for kNoHello, it
  /// has been admitted meanwhile.
  std::optional<Ending> take(std::uint64_t id, SessionEnd why, const ServerSession* only);
  [[nodiscard]] std::vector<Ending> take_all();
  [[nodiscard]] Session find_kept(std::uint64_t id) const;
  /// Takes out a kept session. False: it is not kept.
  bool take_kept(const ServerSession& session);
  /// Takes out all kept sessions; from now on no session is kept.
  [[nodiscard]] std::vector<Session> take_all_kept();
  /// Takes out the sessions that have been kept for the full time. `behind`: clients wait for the
  /// server before they can return, and the clients of these sessions may be among them: then
  /// sessions are kept longer, at most kMaxBehind.
  [[nodiscard]] std::vector<Session> take_lapsed(Clock::time_point now, bool behind);
  static constexpr std::chrono::seconds kMaxBehind{60};
  /// Restarts at `now` the time in which the clients may return.
  void renew_kept(Clock::time_point now);
  /// From now on no session that ends is kept.
  void stop_keeping();

  /// A session that its client resumes, taken out of the table.
  struct Claimed {
    Session session;             ///< null: the client may resume none
    EventLoop::Token watch = 0;  ///< of its connection; 0: none
    bool too_often = false;      ///< the caller must end it instead
  };
  /// `by` is the client's new session, which is admitted before the other one is taken out. Errors:
  /// those of admit().
  Result<Claimed> claim(const control::Resume& resume, const ServerSession& by);
  /// From now on the attached session `id` has the id `resumed`.
  void rename(std::uint64_t id, std::uint64_t resumed);
  /// The session's client has told, or proven, its name. Another call changes nothing. Errors:
  /// kLimitExceeded (limits.sessions_max); kConnectionLost: the session has ended meanwhile;
  /// kConnectionRefused: its client is no longer one of the server's.
  Status admit(const ServerSession& session);

  /// The present clients.
  [[nodiscard]] std::shared_ptr<const ClientRegistry> clients() const;
  struct Removed {
    std::vector<Ending> attached;
    std::vector<Session> kept;
  };
  /// Takes out the sessions of clients, or keys, that are not in the new registry.
  Removed set_clients(std::shared_ptr<const ClientRegistry> clients);

  /// Ids of sessions whose clients have not finished the handshake within
  /// limits.handshake_timeout.
  [[nodiscard]] std::vector<std::uint64_t> late(Clock::time_point now) const;
  /// Sessions whose clients were silent for longer than limits.session_lease. Silence before
  /// `since` does not count.
  [[nodiscard]] std::vector<Session> silent(Clock::time_point now, Clock::time_point since) const;

  /// At most `max` attached sessions, in any order.
  [[nodiscard]] std::vector<Session> some(std::size_t max) const;
  [[nodiscard]] std::vector<Session> all() const { return some(SIZE_MAX); }
  /// The sessions that wait for their clients to return.
  [[nodiscard]] std::vector<Session> kept() const;
  /// At most `max` attached sessions with their ids as text, in the order of these texts, beginning
  /// after `after`.
  [[nodiscard]] std::vector<std::pair<std::string, Session>> list(std::string_view after,
                                                                  std::size_t max) const;
  /// At most `max` sessions whose clients are admitted, including kept ones, in the order of their
  /// ids, beginning after `after`.
  [[nodiscard]] std::vector<Session> page(std::uint64_t after, std::size_t max) const;
  /// The number of attached sessions.
  [[nodiscard]] std::size_t size() const;
  /// The number of attached sessions whose clients are admitted.
  [[nodiscard]] std::size_t admitted_count() const;
  /// The number of sessions that are out of the table and not released by the worker yet.
  [[nodiscard]] std::size_t ending_count() const;

  /// ServerSession calls these when an object is made or destroyed.
  void count_made() noexcept { living_.fetch_add(1); }
  void count_destroyed() noexcept {
    const std::size_t before = living_.fetch_sub(1);
    REMORA_ASSERT(before > 0, "a session is counted when it is made");
  }

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
  /// Guarded by the lock of the sessions, so that each admitted session has a client of this
  /// registry.
  std::shared_ptr<const ClientRegistry> clients_ REMORA_GUARDED_BY(mutex_);
};

}  // namespace remora::detail
