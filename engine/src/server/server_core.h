#pragma once

/// A running server: its parts, and how they start and stop.
///
/// The control thread accepts connections, receives messages and notices the end of clients; it
/// never blocks on a request. The worker serves the requests in order; meanwhile registration
/// threads register the memory of grants for it, and the pool with a device that has returned. The
/// application calls from its own threads.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <remora/config/server_config.h>
#include <remora/engine/server.h>

#include "base/log_rate_limiter.h"
#include "server/client_registry.h"
#include "server/client_wait_budget.h"
#include "server/control_thread.h"
#include "server/delayed_sessions.h"
#include "server/listener_set.h"
#include "server/notifier.h"
#include "server/pool_metrics.h"
#include "server/region_manager.h"
#include "server/registration_threads.h"
#include "server/running_limits.h"
#include "server/server_drain.h"
#include "server/server_metrics.h"
#include "server/server_session.h"
#include "server/session_ender.h"
#include "server/session_table.h"
#include "server/status_endpoint.h"
#include "server/warm/restored_sessions.h"
#include "server/warm/warm_memory.h"
#include "server/worker.h"

namespace remora::detail {

/// Starts and stops a server. exception: it owns all parts of the server.
class ServerCore {
 public:
  /// How a server is started: see Server::start().
  struct StartOptions {
    std::shared_ptr<metrics::Registry> registry{};
    std::vector<RefusedTransport>* refused = nullptr;
    std::stop_token stop{};
    StartProgressHandler on_progress{};
    std::shared_ptr<DescriptorStore> store{};
  };
  static Result<std::unique_ptr<ServerCore>> start(const config::ServerConfig& config,
                                                   StartOptions options);
  /// As start(), with listeners and an endpoint that are open already, and a valid configuration.
  static Result<std::unique_ptr<ServerCore>> start_behind(const config::ServerConfig& config,
                                                          ServerMetrics metrics,
                                                          ListenerSet listeners,
                                                          StatusEndpoint status,
                                                          const StartOptions& options);
  /// `warm`: null without pool.warm_restart.
  ServerCore(config::ServerConfig config, ServerMetrics metrics, std::shared_ptr<Pool> pool,
             ListenerSet listeners, StatusEndpoint status, std::unique_ptr<WarmMemory> warm);
  ~ServerCore();
  ServerCore(const ServerCore&) = delete;
  ServerCore& operator=(const ServerCore&) = delete;

  /// Tells the clients, waits for them as ServerDrain does, and ends all sessions. Idempotent.
  void stop() noexcept { end(End::kStop); }
  /// See Server::hand_over(). Idempotent.
  void hand_over() noexcept { end(End::kHandOver); }
  /// Whether stop() or hand_over() has run.
  [[nodiscard]] bool ended() const noexcept { return ended_.load(std::memory_order_acquire); }
  /// See Server::expedite_stop().
  void expedite_stop() noexcept { drain_.expedite(); }

  // The parts.
  /// The configuration with which the server was started; for its present limits see limits().
  [[nodiscard]] const config::ServerConfig& config() const noexcept { return config_; }
  /// The limits as they are now. Any thread.
  [[nodiscard]] config::Limits limits() const noexcept { return limits_.get(); }
  [[nodiscard]] const ServerMetrics& metrics() const noexcept { return metrics_; }
  [[nodiscard]] const ListenerSet& listeners() const noexcept { return listeners_; }
  [[nodiscard]] SessionTable& session_table() noexcept { return sessions_; }
  [[nodiscard]] const SessionTable& session_table() const noexcept { return sessions_; }
  [[nodiscard]] SessionEnder& ender() noexcept { return ender_; }
  [[nodiscard]] ControlThread& control() noexcept { return control_; }
  [[nodiscard]] ServerDrain& drain() noexcept { return drain_; }
  [[nodiscard]] RegionManager& regions() noexcept { return regions_; }
  [[nodiscard]] const RegionManager& regions() const noexcept { return regions_; }
  [[nodiscard]] Catalog& catalog() noexcept { return regions_.catalog(); }
  [[nodiscard]] Notifier& notifier() noexcept { return notifier_; }
  /// Null without pool.warm_restart.
  [[nodiscard]] WarmMemory* warm() const noexcept { return warm_.get(); }
  [[nodiscard]] RestoredSessions& restored_sessions() noexcept { return restored_; }
  [[nodiscard]] const RestoredSessions& restored_sessions() const noexcept { return restored_; }
  /// How many processes may still write the region as clients of the previous process (shm).
  [[nodiscard]] std::size_t restored_mappings(const RegionEntry& region) const {
    return region.fixed_info().shm ? restored_.mapping_processes() : 0;
  }
  /// Control thread: gives up the sessions of the previous process whose clients have not returned.
  /// `behind`: see SessionTable::take_lapsed().
  void end_lapsed_restored(Clock::time_point now, bool behind) noexcept;
  /// Restarts the time in which the clients of these sessions may return, and the time for which
  /// regions that they may have open are kept.
  void renew_restored(Clock::time_point now) noexcept;
  [[nodiscard]] ServerStatusReport& status_report() const noexcept { return status_.report(); }
  /// Worker.
  [[nodiscard]] RevocationCoordinator& revocations() noexcept { return regions_.revocations(); }
  [[nodiscard]] DelayedSessions& delayed_sessions() noexcept { return delayed_sessions_; }
  [[nodiscard]] ClientWaitBudget& client_wait_budget() noexcept { return client_wait_budget_; }
  /// Any thread.
  [[nodiscard]] RegistrationThreads& registration_threads() noexcept { return registrations_; }

  [[nodiscard]] std::uint64_t boot_id() const noexcept { return boot_id_; }
  [[nodiscard]] std::uint64_t memory_id() const noexcept { return memory_id_; }
  [[nodiscard]] PoolUsage pool_usage() const { return regions_.pool().usage(); }
  [[nodiscard]] std::uint64_t orphaned_bytes() const { return regions_.pool().orphaned_bytes(); }
  [[nodiscard]] std::uint16_t port() const noexcept { return listeners_.port(); }
  [[nodiscard]] const std::string& metrics_address() const noexcept { return status_.address(); }
  [[nodiscard]] std::string status_json(const metrics::StatusQuery& query) const {
    return status_.report().json(query);
  }

  /// Runs `job` on the worker. False: the worker has ended. Any thread.
  bool enqueue(Worker::Job job) { return worker_.enqueue(std::move(job)); }
  /// See Worker::enqueue_connecting(). Any thread.
  bool enqueue_connecting(Worker::Job job) { return worker_.enqueue_connecting(std::move(job)); }
  /// See Server::alive().
  [[nodiscard]] Status alive() const;
  /// How long the worker's present job has run; 0: no job runs.
  [[nodiscard]] std::chrono::seconds job_age() const noexcept { return worker_.job_age(); }
  [[nodiscard]] std::size_t jobs_waiting() const { return worker_.jobs_waiting(); }

  [[nodiscard]] std::size_t session_count() const { return sessions_.size(); }
  [[nodiscard]] std::vector<std::shared_ptr<ServerSession>> sessions(std::size_t max) const {
    return sessions_.some(max);
  }
  [[nodiscard]] bool asks_for_keys() const noexcept { return config_.auth == config::Auth::kKeys; }
  /// See Server::set_clients().
  Status set_clients(const std::vector<config::ClientConfig>& clients);
  /// See Server::set_limits().
  Status set_limits(const config::Limits& limits);
  /// The event for a session that is admitted while the server stops or is drained.
  [[nodiscard]] std::optional<control::Event> draining() const { return drain_.event(); }
  /// Worker: counts a refusal, and logs a few a second.
  void note_refused(ServerMetrics::Refusal why, const ServerSession& session,
                    std::string_view client_name);
  /// Worker: counts a request that met a limit of the server, and logs one a second.
  void note_limit(const Error& error, const ServerSession& session);
  /// Worker: whether a log line may say that the requests of one more session wait.
  [[nodiscard]] bool may_log_delayed(Clock::time_point now) noexcept {
    return delayed_lines_.allows(now);
  }

 private:
  enum class End : std::uint8_t { kStop, kHandOver };
  struct TakenOver;
  static Result<TakenOver> take_over(KeptMemory kept, const config::Pool& options,
                                     const Placement& placement);
  static Result<TakenOver> make_pool(const config::ServerConfig& config, WarmMemory* warm,
                                     const Placement& placement, const StartOptions& options);
  void restore(TakenOver taken_over);
  void remove_orphans();
  void end(End how) noexcept;
  void leave_memory() noexcept;
  Status begin();

  const config::ServerConfig config_;
  RunningLimits limits_;
  const ServerMetrics metrics_;
  const std::uint64_t boot_id_;
  const std::unique_ptr<WarmMemory> warm_;  ///< outlives the catalog of the regions
  const std::uint64_t memory_id_;
  RestoredSessions restored_;
  std::atomic<bool> begun_{false};  ///< its start has succeeded
  SessionTable sessions_;           // destroyed late: asserts that no session is left
  ListenerSet listeners_;
  StatusEndpoint status_;
  PoolMetrics pool_metrics_;
  Worker worker_;
  Notifier notifier_;
  RegionManager regions_;
  DelayedSessions delayed_sessions_;     ///< worker
  ClientWaitBudget client_wait_budget_;  ///< worker
  RegistrationThreads registrations_;
  ServerDrain drain_;
  SessionEnder ender_;
  /// Each line names a client, so several lines a second are useful; worker.
  log::LogRateLimiter refused_lines_{5};
  log::LogRateLimiter delayed_lines_{1};
  log::LogRateLimiter limit_lines_{1};
  std::atomic<bool> stopped_{false};
  std::atomic<bool> ended_{false};
  ControlThread control_;  // destroyed first: its handlers use all of the above
};

}  // namespace remora::detail
