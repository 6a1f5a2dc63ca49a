#pragma once

/// A running server: listeners and sessions on a control thread, requests on a worker thread.
///
/// The control thread accepts, receives and notices death; it never blocks. Requests, which may pin
/// or zero memory, are served by the worker, in order, so a session's requests never overtake each
/// other.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <thread>
#include <unordered_map>
#include <vector>

#include <remora/config/server_config.h>
#include <remora/engine/server.h>
#include <remora/metrics/http_endpoint.h>

#include "base/event_loop.h"
#include "base/log_rate_limiter.h"
#include "server/client_registry.h"
#include "server/delayed_sessions.h"
#include "server/memory/allocation_queue.h"
#include "server/memory/catalog.h"
#include "server/memory/pool.h"
#include "server/notifier.h"
#include "server/pending_handshakes.h"
#include "server/revocation_coordinator.h"
#include "server/server_metrics.h"
#include "server/server_session.h"
#include "server/server_status.h"
#include "transport/listen.h"
#include "transport/listener.h"

namespace remora::detail {

class ServerCore {
 public:
  /// How a server is started: see Server::start().
  struct StartOptions {
    std::shared_ptr<metrics::Registry> registry{};
    std::vector<RefusedTransport>* refused = nullptr;
    std::stop_token stop{};
    StartProgressHandler on_progress{};
  };
  static Result<std::unique_ptr<ServerCore>> start(const config::ServerConfig& config,
                                                   StartOptions options);
  /// What clients come in by; bound before memory is touched, so that a port in use shows at once.
  struct Listeners {
    std::vector<std::unique_ptr<transport::Listener>> listeners;
    std::vector<std::string> devices;                       ///< atomic domains we can offer
    std::vector<transport::DeviceProtection> protection{};  ///< of the devices, once all is lent
    std::uint16_t port = 0;
    std::shared_ptr<ServerStatusReport> desk;
    std::optional<metrics::HttpEndpoint> http;
  };
  /// As start(), behind listeners that are open already, with a configuration that is valid.
  static Result<std::unique_ptr<ServerCore>> start_behind(const config::ServerConfig& config,
                                                          ServerMetrics metrics,
                                                          Listeners listeners,
                                                          const StartOptions& options);
  ServerCore(config::ServerConfig config, ServerMetrics metrics, std::shared_ptr<Pool> pool,
             Listeners listeners);
  ~ServerCore();
  ServerCore(const ServerCore&) = delete;
  ServerCore& operator=(const ServerCore&) = delete;

  void stop() noexcept;
  /// See Server::expedite_stop().
  void expedite_stop() noexcept { expedited_ = true; }

  // For sessions.
  [[nodiscard]] const config::ServerConfig& config() const noexcept { return config_; }
  [[nodiscard]] const ServerMetrics& metrics() const noexcept { return metrics_; }
  [[nodiscard]] Catalog& catalog() noexcept { return catalog_; }
  [[nodiscard]] PoolUsage pool_usage() const { return pool_->usage(); }
  [[nodiscard]] std::uint64_t orphaned_bytes() const { return pool_->orphaned_bytes(); }
  [[nodiscard]] std::uint64_t boot_id() const noexcept { return boot_id_; }
  [[nodiscard]] std::uint64_t memory_id() const noexcept { return memory_id_; }
  [[nodiscard]] Notifier& notifier() noexcept { return notifier_; }
  /// Worker.
  [[nodiscard]] RevocationCoordinator& grants() noexcept { return grants_; }
  /// Worker.
  [[nodiscard]] AllocationQueue& memory_line() noexcept { return memory_line_; }
  /// Worker.
  [[nodiscard]] DelayedSessions& delayed() noexcept { return delayed_; }
  /// Worker: whether a line may tell of one more session whose requests wait.
  [[nodiscard]] bool may_log_delayed(Clock::time_point now) noexcept {
    return delayed_lines_.allows(now);
  }
  /// Worker: ends the session where `served` says so.
  void after_serving(const ServerSession& session, ServerSession::Served served) noexcept;
  /// Worker: ends a session that was locked out of memory it has no grant of, also one that is
  /// kept.
  void end_locked_out(const std::shared_ptr<ServerSession>& session) noexcept;
  /// Worker: takes a session whose client has come back out of the server, or null: there is none.
  /// Its lanes go with its endpoint, which is the caller's to shut down. `by` is admitted in its
  /// place, before anything is taken. Errors: those of admit().
  Result<std::shared_ptr<ServerSession>> claim(const control::Resume& resume,
                                               const ServerSession& by);
  /// Worker: the session `id` is `resumed` from now on.
  void rename(std::uint64_t id, std::uint64_t resumed);
  /// Any thread: the session has room for notices that it had none for.
  void look_for_notices(std::uint64_t session_id) noexcept;
  /// Runs `job` on the worker. False: there is none any more.
  bool enqueue(std::function<void()> job);
  /// `device`: the session's, for "auto"; empty for none. `owner`: the client, where they have
  /// keys. Waits until `deadline` for memory that is being zeroed. Errors: as
  /// Session::create_region; kTimedOut; kCancelled (the server stops).
  Result<RegionInfo> create_region(RegionSpec spec, const std::string& device,
                                   std::string_view owner, Deadline deadline);
  /// For the application itself: "auto" is the CPU with shm or without a device, else the device.
  Result<RegionInfo> create_region(RegionSpec spec);
  /// Not Removal::kNow. Errors: as Server::remove_region.
  Status remove_region(std::string_view name, Removal removal);
  /// Worker: takes the region's grants back; it is gone when `then` is called.
  void remove_now(const std::shared_ptr<RegionEntry>& region, std::function<void()> then);
  /// As remove_now(), in the region's turn.
  void take_away(const std::shared_ptr<RegionEntry>& region, std::function<void()> then);
  /// As remove_now(), by any other thread, which waits for it.
  Status remove_now(std::string_view name);
  using MayGrow = std::function<Status(std::uint64_t more_bytes)>;
  /// Worker, in the region's turn: `then` is called with how it went. Larger: when there is memory,
  /// until `deadline`, and what `may` says of so many bytes more is asked first; grants keep what
  /// they reach. Smaller: they are all taken back first. Errors: those of Catalog::grow() and
  /// shrink(), and of check_size().
  void resize_region(const std::shared_ptr<RegionEntry>& region, std::uint64_t size_bytes,
                     Deadline deadline, MayGrow may, std::function<void(const Status&)> then);
  /// By any other thread, which waits for it. Errors: also kUnknownRegion, kClosed.
  Result<RegionInfo> resize_region(std::string_view name, std::uint64_t size_bytes);
  [[nodiscard]] bool asks_for_keys() const noexcept { return config_.auth == config::Auth::kKeys; }
  /// Those of now; any thread.
  [[nodiscard]] std::shared_ptr<const ClientRegistry> clients() const;
  /// See Server::set_clients().
  Status set_clients(const std::vector<config::ClientConfig>& clients);
  /// Worker: the session has said who it is; once more changes nothing. Errors: kLimitExceeded
  /// (limits.sessions_max); kConnectionLost: it has ended meanwhile; kConnectionRefused: its client
  /// is no longer one of the server's.
  Status admit(const ServerSession& session);
  /// Worker: whether it may wait now for an answer to leave, for somebody who has not said who he
  /// is, or who does not take what he asked for; both together get no more than a tenth of the
  /// worker's time. linger_over() says how long.
  [[nodiscard]] bool may_linger(Clock::time_point now) const noexcept {
    return now >= linger_again_;
  }
  void linger_over(Clock::time_point began, Clock::time_point now) noexcept {
    linger_again_ = now + 9 * (now - began);
  }
  /// Worker: counts, and logs a few a second.
  void note_refused(ServerMetrics::Refusal why, const ServerSession& session,
                    std::string_view client_name);
  [[nodiscard]] std::size_t session_count() const;
  /// Any thread: a session's object comes or goes.
  void session_lives() noexcept { ++living_sessions_; }
  void session_is_gone() noexcept { --living_sessions_; }
  /// What a session is to be told that comes while the server waits for its clients to leave.
  [[nodiscard]] std::optional<control::Event> draining() const;
  /// How long the worker has been at what it does now; 0 where it does nothing.
  [[nodiscard]] std::chrono::seconds job_age() const noexcept;
  /// How many jobs wait for the worker.
  [[nodiscard]] std::size_t jobs_waiting() const;
  /// At most so many, in no order.
  [[nodiscard]] std::vector<std::shared_ptr<ServerSession>> sessions(std::size_t most) const;
  /// At most so many, in the order of their places, those behind `after` alone. A session keeps its
  /// place.
  [[nodiscard]] std::vector<std::pair<std::string, std::shared_ptr<ServerSession>>> sessions_behind(
      std::string_view after, std::size_t most) const;
  [[nodiscard]] std::vector<RegionInfo> regions(std::string_view after, std::size_t most) const {
    return catalog_.list(after, most);
  }
  [[nodiscard]] std::size_t region_count() const { return catalog_.size(); }
  [[nodiscard]] const std::vector<std::string>& devices() const noexcept { return devices_; }
  [[nodiscard]] const std::vector<transport::DeviceProtection>& protection() const noexcept {
    return protection_;
  }
  [[nodiscard]] const std::vector<TransportKind>& offered() const noexcept { return offered_; }
  [[nodiscard]] bool offers(TransportKind kind) const noexcept;

  // For Server.
  [[nodiscard]] std::uint16_t port() const noexcept { return port_; }
  [[nodiscard]] std::string metrics_address() const;
  [[nodiscard]] const std::vector<std::string>& listening() const noexcept { return listening_; }
  [[nodiscard]] std::string status_json(const metrics::StatusQuery& query) const {
    return desk_->json(query);
  }

 private:
  struct Attached {
    std::shared_ptr<ServerSession> session;
    EventLoop::Token watch = 0;
    bool admitted = false;
  };
  struct Kept {
    std::shared_ptr<ServerSession> session;
    Deadline until;
  };
  /// One that is none of the server's any more, and what is left to be done about it.
  struct Ending {
    std::shared_ptr<ServerSession> session;
    EventLoop::Token watch = 0;
    bool kept = false;  ///< for its client to come back
    bool told = false;  ///< why: that word is to leave before the channel ends
  };
  static Result<Listeners> open_doors(const config::ServerConfig& config,
                                      const std::shared_ptr<metrics::Registry>& registry,
                                      const StartOptions& options);
  static Result<Listeners> open_listeners(const config::ServerConfig& config,
                                          const transport::ListenAddress& address,
                                          const std::shared_ptr<metrics::Registry>& registry,
                                          std::vector<RefusedTransport>& refused);
  static Result<metrics::HttpEndpoint> open_endpoint(
      const config::Metrics& metrics, const std::shared_ptr<metrics::Registry>& registry,
      const std::shared_ptr<ServerStatusReport>& desk, const std::stop_token& stop);
  Result<RegionInfo> create_region(RegionSpec spec, const std::string& device,
                                   std::string_view owner, Deadline deadline,
                                   const PopulateSteps& steps);
  [[nodiscard]] std::string first_device_for(const RegionSpec& spec) const;
  Status create_configured_regions(const StartOptions& options);
  Status export_pool();
  Status begin();
  void on_listener(transport::Listener& listener) noexcept;
  /// That have ended, and that the worker has not given back yet.
  [[nodiscard]] std::size_t ending_sessions() const;
  void on_session(std::uint64_t id) noexcept;
  bool take_notices(ServerSession& session, std::size_t& budget) noexcept;
  void on_room() noexcept;
  using SessionEnd = ServerMetrics::SessionEnd;
  void hung_up(const std::shared_ptr<ServerSession>& session) noexcept;
  using Sessions = std::unordered_map<std::uint64_t, Attached>;
  [[nodiscard]] Ending detach(Sessions::iterator at) noexcept;
  void finish(std::span<Ending> endings, SessionEnd why) noexcept;
  void end_unknown(std::vector<Ending> gone) noexcept;
  bool end_session(std::uint64_t id, SessionEnd why, const ServerSession* only = nullptr,
                   std::optional<ServerMetrics::Refusal> refused = {}) noexcept;
  void end_late_arrivals() noexcept;
  void end_silent_sessions() noexcept;
  void forget_lapsed_sessions() noexcept;
  [[nodiscard]] bool keep(const std::shared_ptr<ServerSession>& session, SessionEnd why);
  void drop_kept(std::unordered_map<std::uint64_t, Kept>::iterator dropped);
  Status admit_locked(const ServerSession& session, std::size_t leaving);
  void await_clients() noexcept;
  bool end_all_sessions() noexcept;
  /// Sessions whose clients have been let in.
  [[nodiscard]] std::size_t admitted_count() const;
  void tell_all(const control::Event& event);
  void end_unheard(std::uint64_t id, ServerMetrics::Refusal why) noexcept;
  void resize_in_turn(const std::shared_ptr<RegionEntry>& region, std::uint64_t size_bytes,
                      Deadline deadline, MayGrow may, std::function<void(const Status&)> then);
  void look_at_memory_line();
  void bury_zombies();
  void remove_expired();
  void work() noexcept;

  config::ServerConfig config_;
  ServerMetrics metrics_;
  std::shared_ptr<Pool> pool_;
  Catalog catalog_;
  Notifier notifier_;
  RevocationCoordinator grants_;
  DelayedSessions delayed_;
  AllocationQueue memory_line_;
  std::uint64_t boot_id_;
  std::uint64_t memory_id_;
  std::uint16_t port_;
  const std::vector<TransportKind> offered_;  // read while stop() takes the listeners away
  std::vector<std::unique_ptr<transport::Listener>> listeners_;
  const std::vector<std::string> listening_;  // as they were
  std::vector<std::string> devices_;
  const std::vector<transport::DeviceProtection> protection_;
  std::vector<metrics::CallbackHandle> pool_series_;
  const std::shared_ptr<ServerStatusReport> desk_;
  const std::string metrics_address_;
  std::optional<metrics::HttpEndpoint> http_;

  mutable std::mutex mutex_;  // sessions and jobs
  Sessions sessions_;
  std::unordered_map<std::uint64_t, Kept> kept_;  ///< whose clients may come back
  std::atomic<std::size_t> living_sessions_{0};   ///< of any kind
  Clock::time_point looked_at_{};                 // control thread, as lease_floor_
  Clock::time_point lease_floor_{};               ///< silence before this is the server's own
  std::size_t admitted_ = 0;                      ///< of sessions_
  std::shared_ptr<const ClientRegistry> clients_;
  PendingHandshakes pending_handshakes_;  // control thread
  // Each line that a client can cause comes once a second at most, with a count of the others.
  // Each names a client, so that several within a second are of use.
  log::LogRateLimiter refused_lines_{5};  // worker, as those down to linger_again_
  log::LogRateLimiter delayed_lines_{1};
  log::LogRateLimiter protocol_lines_{1};
  log::LogRateLimiter too_often_lines_{1};
  log::LogRateLimiter listener_lines_{1};  // control thread, as those down to linger_again_
  log::LogRateLimiter odd_lines_{1};
  log::LogRateLimiter silent_lines_{1};
  log::LogRateLimiter unheard_lines_{1};
  Clock::time_point linger_again_{};
  std::deque<std::function<void()>> jobs_;
  std::vector<std::uint64_t> with_room_;  ///< sessions that may have notices to take
  std::condition_variable job_added_;
  UniqueFd room_event_;
  std::atomic<bool> expedited_{false};
  std::stop_source populating_;               ///< ends what the worker populates
  std::atomic<bool> removes_expired_{false};  ///< a job for it waits, or is under way
  std::atomic<Clock::rep> drains_until_{0};   ///< 0: it does not stop
  std::atomic<Clock::rep> job_began_{0};      ///< 0: none
  bool stopping_ = false;
  bool worker_ended_ = false;
  bool stopped_ = false;
  std::thread worker_;
  std::vector<EventLoop::Token> listener_watches_;
  std::unique_ptr<EventLoop> loop_;  // first to go: its handlers use all of the above
};

/// Random, never 0. Source: getrandom(2).
[[nodiscard]] std::uint64_t random_id();

}  // namespace remora::detail
