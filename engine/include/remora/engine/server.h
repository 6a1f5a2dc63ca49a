#pragma once

/// The memory server, embedded. `remora-server` is a thin program around this class.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include <remora/config/server_config.h>
#include <remora/engine/administration.h>
#include <remora/engine/descriptor_store.h>
#include <remora/engine/region.h>
#include <remora/engine/types.h>
#include <remora/owned.h>
#include <remora/result.h>

namespace remora::metrics {
class Registry;
struct StatusQuery;
}  // namespace remora::metrics

namespace remora {

namespace detail {
class ServerCore;
class RegionMemory;
}  // namespace detail

/// The serving application's own access to a region of its server. Copyable; keeps the memory
/// alive.
///
/// Clients change the bytes at any time and without notice. A load by the CPU is not atomic with
/// respect to a NIC's compare-and-swap (ATOMIC_HCA), and may see a part of a client's write. A view
/// that was moved from has no bytes and answers kClosed.
class RegionView {
 public:
  /// For Server::view().
  explicit RegionView(std::shared_ptr<detail::RegionMemory> memory) noexcept
      : memory_{std::move(memory)} {}

  /// The size of the region when the view was made.
  [[nodiscard]] std::uint64_t size_bytes() const noexcept;
  /// Copies out of or into the region, in the caller's thread. `into` is memory that may be
  /// written, `from` memory that may be read, as with memcpy(3). Errors: kOutOfRange.
  Status read(ByteOffset from, std::span<std::byte> into) const;
  /// Writes into the region's memory, as read() reads it. Errors: as read().
  Status write(ByteOffset to, std::span<const std::byte> from) const;
  /// The contiguous pieces of which the region consists, in order. The spans are valid as long as
  /// a copy of this view.
  [[nodiscard]] std::vector<std::span<std::byte>> extents() const;

 private:
  detail::OwnedShared<detail::RegionMemory> memory_;
};

/// The message that a client sends after a write, see Region::write_notify. The bytes are in place
/// and visible. The message can name any place that the client's grant covers.
struct Notification {
  std::string region{};            ///< the region's name
  ByteOffset offset{};             ///< of the written bytes, in the region
  std::uint64_t length_bytes = 0;  ///< of the written bytes
  std::uint32_t tag = 0;           ///< the `notice` that the client gave
};
/// Called on the server's notification thread, one notification at a time, those of one client's
/// lane in order. While the handler runs, other notifications wait; when 256 of one client wait,
/// that client's writes with notices wait, too. Notifications of a client that has gone are still
/// delivered. The handler may call the server, also to stop it, but must not destroy it; an
/// exception from it is logged and counted.
using NotificationHandler = std::function<void(const Notification&)>;

/// The counts of a server, at one moment.
struct ServerStatus {
  std::uint64_t sessions = 0;  ///< also those that wait for their client to resume them
  std::uint64_t regions = 0;
  std::uint64_t grants = 0;  ///< of all sessions
  std::uint64_t pool_bytes = 0;
  std::uint64_t pool_used_bytes = 0;     ///< by regions, in whole pages of the pool
  std::uint64_t pool_freeing_bytes = 0;  ///< removed, not yet zeroed
};

/// A transport that the configuration allows but the server does not offer, and the reason.
struct RefusedTransport {
  TransportKind kind;
  Error error;
};

/// The progress of Server::start().
struct StartProgress {
  /// The steps, in their order.
  enum class Step : std::uint8_t {
    kPool,     ///< populates the pool
    kDevices,  ///< registers the pool with RDMA devices; 0 bytes are done where grants are
               ///< registrations
    kRegions,  ///< creates the regions of the configuration; those with shm are populated
  };
  Step step = Step::kPool;
  std::uint64_t done_bytes = 0;   ///< of this step
  std::uint64_t total_bytes = 0;  ///< of this step
};
/// Called by the thread that calls Server::start(), before each 64 MiB or piece of the pool that
/// this thread works on, and after the last one. It must not throw.
using StartProgressHandler = std::function<void(const StartProgress&)>;

/// Offers memory to clients until it is stopped or destroyed. Move-only. Thread-safe. A server that
/// was moved from answers kClosed; functions that return no Result do nothing and return an empty
/// value, "{}" or an empty registry. So does the parent's server in a child of fork(2), whose end
/// stops no server.
class Server {
 public:
  /// Binds the addresses, maps and populates the pool, creates the configured regions, and then
  /// accepts clients. Blocks meanwhile: about 0.3 s for each GiB. `registry`: for the series; null:
  /// the server makes its own. The metrics endpoint of `config` is started first; its `/readyz`
  /// answers 503 until the server accepts clients. `stop` ends the start early: the server checks
  /// it before each 64 MiB that it populates, before each piece of the pool that it registers,
  /// before each region, and while it looks up a host name. Errors: kAddressInUse (subject: the
  /// address or socket); kUnreachable (`listen.address` or `metrics.address` is no address of this
  /// machine); kNotFound (a name that does not resolve, the named device); kPermissionDenied (a
  /// port below 1024); kOutOfMemory (the pool is larger than free memory; with the requested and
  /// the allowed size); kUnsupported (no transport, or none for a region of the configuration);
  /// kInvalidArgument; kCancelled (`stop`). `refused` gets the transports that are not offered,
  /// also after success: with `auto` a transport is left out if the machine does not have it.
  /// `store`: with `pool.warm_restart`, the store in which the previous process has left its
  /// memory, and in which this process leaves its own: see docs/warm-restart.md. Further errors
  /// with it: kUnsupported (no store); kTimedOut (the previous process still runs); those of
  /// DescriptorStore. After any error the memory of the previous process stays stored. Memory that
  /// is damaged or missing is no error: the memory is new, and the log and status_json() say why.
  static Result<Server> start(const config::ServerConfig& config,
                              std::shared_ptr<metrics::Registry> registry = nullptr,
                              std::vector<RefusedTransport>* refused = nullptr,
                              std::stop_token stop = {}, StartProgressHandler on_progress = {},
                              std::shared_ptr<DescriptorStore> store = nullptr);
  /// As stop().
  ~Server();
  Server(Server&&) noexcept;
  /// Stops the server that this object had, as stop() does.
  Server& operator=(Server&&) noexcept;

  /// Refuses new sessions, tells each session (SessionHandlers::on_drain), waits for sessions to
  /// end by themselves (limits.drain_timeout at most, 5 s by default; not at all if there are
  /// none), ends the others, and frees everything. Idempotent. Blocks for that time and at most
  /// about 2 s more. The destructor does the same.
  void stop() noexcept;
  /// As stop(), but leaves the memory to the next process: the server neither tells sessions nor
  /// waits for them, and their clients continue with that process. Without `pool.warm_restart`, or
  /// if the memory cannot be left any more (the log says why), it is stop(). Changes that the
  /// application makes during the call may be lost. Destroy every RegionView before: it reaches
  /// memory that the next process serves, even after this Server is destroyed.
  void hand_over() noexcept;
  /// Ends the wait for sessions in a present or later stop(). Returns at once; from any thread.
  void expedite_stop() noexcept;

  /// Whether the server makes progress: its control thread runs, and its present request does not
  /// take ten times limits.request_timeout without a step. Errors: kTimedOut; the subject says
  /// which of the two makes no progress.
  [[nodiscard]] Status alive() const;

  /// Calls `handler` for each write with notice to the region of this name, which need not exist
  /// yet. An empty handler removes the present one; without a handler notices are dropped and
  /// counted. On return the former handler is not running, unless it is the caller. Errors: kClosed
  /// (stopped), kSystem.
  Status on_notify(std::string_view region, NotificationHandler handler) const;

  /// Replaces the clients of the configuration by these, from now on, without a restart; the server
  /// must have been started with `auth: keys`. Sessions of a client, or with a key, that is not in
  /// the list any more end at once. The new rights of other clients apply from their next request
  /// on, and open regions stay open. Regions of a removed client stay. Errors: kInvalidArgument
  /// (the subject says which of config::validate()'s rules is broken); kUnsupported (no `auth:
  /// keys`).
  Status set_clients(const std::vector<config::ClientConfig>& clients) const;

  /// Sets the server's limits from now on; a lower limit ends no existing session, grant or region.
  /// Limits that a running server cannot change (config::reload_rule()) must stay the same. Errors:
  /// kInvalidArgument (the subject says which of config::validate()'s rules is broken);
  /// kUnsupported (the subject is the key that cannot change). After an error nothing has changed.
  Status set_limits(const config::Limits& limits) const;

  // The administration of the server by its application, which needs no right for it. Each function
  // blocks while the worker's present job runs; handlers may call it. Errors of all: kClosed
  // (stopped).
  /// As Session::sessions().
  Result<std::vector<SessionInfo>> sessions() const;
  /// As Session::end_session(), for any session. Errors: kNotFound.
  Status end_session(std::uint64_t id) const;
  /// As Session::drain(); DrainState::sessions counts all sessions with a client. Requests of
  /// clients that the server is already carrying out still end. create_region() of the application
  /// is not refused. stop() after a drain tells the sessions again.
  Result<DrainState> drain() const;
  /// Ends the drain, whether this function or a client has begun it.
  Result<DrainState> end_drain() const;
  /// The present state; changes nothing.
  Result<DrainState> drain_state() const;

  /// The application's own access to a region. While a view is held, the region cannot shrink.
  /// Errors: kUnknownRegion; kClosed (stopped).
  Result<RegionView> view(std::string_view region) const;
  /// Errors: as Session::create_region; kClosed (stopped).
  Result<RegionInfo> create_region(const RegionSpec& spec) const;
  /// kNow blocks for `limits.revoke_grace` at most, after the worker's present job. Errors:
  /// kUnknownRegion; kBusy while it is open (kIfUnused); kClosed (stopped).
  Status remove_region(std::string_view name, Removal removal = Removal::kIfUnused) const;
  /// As Session::resize_region; blocks as remove_region does. Errors: also kBusy (a view of the
  /// region is held, and it would shrink); kClosed (stopped).
  Result<RegionInfo> resize_region(std::string_view name, std::uint64_t size_bytes) const;
  /// All regions, with their access lists, sorted by name. Empty after stop().
  [[nodiscard]] std::vector<RegionInfo> regions() const;
  /// The present counts; after stop() there are no sessions, regions and grants.
  [[nodiscard]] ServerStatus status() const;
  /// The answer of `/status` at the metrics endpoint, for an application with its own endpoint
  /// (metrics::HttpOptions::status): a JSON object, see docs/status.md. After stop() it has no
  /// regions and sessions.
  [[nodiscard]] std::string status_json() const;
  /// The same with another part of its lists: for metrics::HttpOptions::status_page.
  [[nodiscard]] std::string status_json(const metrics::StatusQuery& query) const;

  /// The port that clients use (the bound port if the configuration says 0).
  [[nodiscard]] std::uint16_t port() const noexcept;
  /// The metrics endpoint as "http://address:port", or empty.
  [[nodiscard]] std::string metrics_address() const;
  /// One line for each transport: "shm /run/…/remora-7471.sock", "rdma 10.0.0.1:7471 on rxe0", "tcp
  /// 10.0.0.1:7471".
  [[nodiscard]] std::vector<std::string> listening() const;
  /// The registry with the server's series: the one that start() got, otherwise its own, which is
  /// valid as long as the server.
  [[nodiscard]] metrics::Registry& registry() const noexcept;

 private:
  explicit Server(std::unique_ptr<detail::ServerCore> core) noexcept;
  detail::OwnedUnique<detail::ServerCore> core_;
};

}  // namespace remora
