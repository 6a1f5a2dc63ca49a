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

/// The serving application's own window on a region of its server. Copyable; keeps the memory
/// alive.
///
/// Clients change the bytes at any time and without notice. A CPU load here is not atomic to a
/// NIC's compare-and-swap (ATOMIC_HCA), and a client's write may be seen in parts. One that was
/// moved from has no bytes and answers kClosed.
class RegionView {
 public:
  explicit RegionView(std::shared_ptr<detail::RegionMemory> memory) noexcept
      : memory_{std::move(memory)} {}

  [[nodiscard]] std::uint64_t size_bytes() const noexcept;
  /// Copies out of or into the region. `into` is memory that may be written, `from` memory that may
  /// be read, as with memcpy(3). Errors: kOutOfRange.
  Status read(ByteOffset from, std::span<std::byte> into) const;
  Status write(ByteOffset to, std::span<const std::byte> from) const;
  /// The contiguous pieces the region is made of, in order.
  [[nodiscard]] std::vector<std::span<std::byte>> extents() const;

 private:
  detail::OwnedShared<detail::RegionMemory> memory_;
};

/// The message that a client sends after a write, see Region::write_notify. The bytes
/// are in place and visible. The client may have said anything that its grant allows.
struct Notification {
  std::string region{};
  ByteOffset offset{};
  std::uint64_t length_bytes = 0;
  std::uint32_t tag = 0;
};
/// Called on the server's notification thread, one at a time, those of one client's lane in order.
/// While it runs, others wait; when 256 of one client wait, that client's writes with notices do.
/// Notifications of a client that has gone are still delivered. It may call the server, also to
/// stop it, but not destroy it; what it throws is logged and counted.
using NotificationHandler = std::function<void(const Notification&)>;

/// The counts of a server, at one moment.
struct ServerStatus {
  std::uint64_t sessions = 0;
  std::uint64_t regions = 0;
  std::uint64_t grants = 0;
  std::uint64_t pool_bytes = 0;
  std::uint64_t pool_used_bytes = 0;
  std::uint64_t pool_freeing_bytes = 0;  ///< removed, not yet zeroed
};

/// A transport that the configuration allows and the server does not offer, and why.
struct RefusedTransport {
  TransportKind kind;
  Error error;
};

/// How far Server::start() is.
struct StartProgress {
  enum class Step : std::uint8_t {
    kPool,     ///< populates the pool
    kDevices,  ///< registers the pool with RDMA devices; 0 bytes are done where grants are
               ///< registrations
    kRegions,  ///< creates the regions of the configuration; those with shm are populated
  };
  Step step = Step::kPool;
  std::uint64_t done_bytes = 0;
  std::uint64_t total_bytes = 0;
};
/// Called by the thread that calls Server::start(), before each 64 MiB or piece of the pool that
/// this thread works on, and after the last of all. It must not throw.
using StartProgressHandler = std::function<void(const StartProgress&)>;

/// Offers memory to clients until it is stopped or destroyed. Move-only. Thread-safe. One that was
/// moved from answers kClosed; what returns no Result does nothing and returns an empty value, "{}"
/// or an empty registry. So does the parent's in a child of fork(2), whose end stops no server.
class Server {
 public:
  /// Binds the addresses, maps and populates the pool, creates the configured regions, and then
  /// accepts clients. Blocks meanwhile: about 0.3 s a GiB. `registry`: where series go; null: one
  /// of the server's own. The metrics endpoint of `config` is started first; its `/readyz` answers
  /// 503 until the server accepts clients. `stop` ends the start early: it is looked at before each
  /// 64 MiB that are populated, before each piece of the pool that is registered, before each
  /// region, and while a host name is looked up.
  /// Errors: kAddressInUse (subject: the address or socket); kUnreachable (`listen.address` or
  /// `metrics.address` is no address of this machine); kNotFound (a name that does not resolve, the
  /// named device); kPermissionDenied (a port below 1024); kOutOfMemory (pool larger than free
  /// memory: asked, allowed); kUnsupported (no transport at all, or none for a region of the
  /// configuration); kInvalidArgument; kCancelled (`stop`). `refused` takes the transports that are
  /// not offered, also when this succeeds: with `auto` they are left out where the machine does not
  /// have them.
  /// `store`: with `pool.warm_restart`, where the process before has left its memory, and where
  /// this one leaves its own: see docs/warm-restart.md. Errors, then: also kUnsupported (no store);
  /// kTimedOut (the process before still runs); those of DescriptorStore. After each error the
  /// memory of the process before stays stored. Memory that is damaged or missing is no error: the
  /// memory is new, and the log and status_json() say why.
  static Result<Server> start(const config::ServerConfig& config,
                              std::shared_ptr<metrics::Registry> registry = nullptr,
                              std::vector<RefusedTransport>* refused = nullptr,
                              std::stop_token stop = {}, StartProgressHandler on_progress = {},
                              std::shared_ptr<DescriptorStore> store = nullptr);
  ~Server();
  Server(Server&&) noexcept;
  Server& operator=(Server&&) noexcept;

  /// Refuses newcomers, tells each session (SessionHandlers::on_drain), waits for sessions to end
  /// by themselves (limits.drain_timeout at most, 5 s by default; not at all where there are none),
  /// ends the others, frees everything. Idempotent. Blocks for that and at most about 2 s. The
  /// destructor does the same.
  void stop() noexcept;
  /// As stop(), but leaves the memory to the next process: sessions are not told and not waited
  /// for, and their clients go on with that process. Without `pool.warm_restart`, or where the
  /// memory cannot be left any more (the log has said why): stop(). What the application changes
  /// while this runs may be lost. Let go of every RegionView before: it reaches memory that the
  /// next process serves, also when this Server is gone and nothing holds that process back.
  void hand_over() noexcept;
  /// Ends the wait for sessions in a stop() that runs or comes. Returns at once; from any thread.
  void expedite_stop() noexcept;

  /// Whether the server makes progress: its control thread comes round, and the request at work
  /// does not take ten times limits.request_timeout without a step. Errors: kTimedOut; the subject
  /// says which of both stands still.
  [[nodiscard]] Status alive() const;

  /// Calls `handler` for each write with notice to the region of this name, there already or not.
  /// An empty one takes it away; without one notices are dropped and counted. On return the handler
  /// before is not running, unless it is the caller. Errors: kClosed (stopped), kSystem.
  Status on_notify(std::string_view region, NotificationHandler handler) const;

  /// Takes these for the server's clients from now on, in place of those of the configuration,
  /// which must have been started with `auth: keys`: so keys are changed without a restart.
  /// Sessions of a client, and such as came with a key, that is there no more end at once; what
  /// others may do counts from their next request on, and what is open stays. Regions of a client
  /// that has gone stay. Errors: kInvalidArgument (the subject says which of config::validate()'s
  /// rules is broken); kUnsupported (no `auth: keys`).
  Status set_clients(const std::vector<config::ClientConfig>& clients) const;

  /// Takes these for the server's limits from now on; those that are lower end nothing that there
  /// is. What a running server cannot change (config::reload_rule()) has to be as it was. Errors:
  /// kInvalidArgument (the subject says which of config::validate()'s rules is broken);
  /// kUnsupported (the subject is the key that the server keeps). Nothing is changed then.
  Status set_limits(const config::Limits& limits) const;

  /// Errors: kUnknownRegion; kClosed (stopped).
  Result<RegionView> view(std::string_view region) const;
  /// Errors: as Session::create_region; kClosed (stopped).
  Result<RegionInfo> create_region(const RegionSpec& spec) const;
  /// kNow blocks for `limits.revoke_grace` at most, and what the worker is at. Errors:
  /// kUnknownRegion; kBusy while it is open (kIfUnused); kClosed (stopped).
  Status remove_region(std::string_view name, Removal removal = Removal::kIfUnused) const;
  /// As Session::resize_region; blocks as remove_region does. Errors: also kBusy: a view of it is
  /// held, and it would be smaller; kClosed (stopped).
  Result<RegionInfo> resize_region(std::string_view name, std::uint64_t size_bytes) const;
  [[nodiscard]] std::vector<RegionInfo> regions() const;
  [[nodiscard]] ServerStatus status() const;
  /// The answer of `/status` at the metrics endpoint, for an application with an endpoint of its
  /// own (metrics::HttpOptions::status): a JSON object, see docs/status.md. After stop() without
  /// regions and sessions.
  [[nodiscard]] std::string status_json() const;
  /// The same with another part of its lists: for metrics::HttpOptions::status_page.
  [[nodiscard]] std::string status_json(const metrics::StatusQuery& query) const;

  /// The port clients use (the bound one when the configuration said 0).
  [[nodiscard]] std::uint16_t port() const noexcept;
  /// The metrics endpoint as "http://address:port", or empty.
  [[nodiscard]] std::string metrics_address() const;
  /// One line a transport: "shm /run/…/remora-7471.sock", "rdma 10.0.0.1:7471 on rxe0",
  /// "tcp 10.0.0.1:7471".
  [[nodiscard]] std::vector<std::string> listening() const;
  [[nodiscard]] metrics::Registry& registry() const noexcept;

 private:
  explicit Server(std::unique_ptr<detail::ServerCore> core) noexcept;
  detail::OwnedUnique<detail::ServerCore> core_;
};

}  // namespace remora
