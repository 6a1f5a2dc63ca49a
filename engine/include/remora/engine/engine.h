#pragma once

/// The client side. A process usually has one Engine.

#include <algorithm>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <remora/config/rdma_settings.h>
#include <remora/config/secret_key.h>
#include <remora/engine/administration.h>
#include <remora/engine/buffer.h>
#include <remora/engine/control.h>
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
class EngineCore;
class EngineServices;
class EngineShare;
class FaultCore;
class SessionCore;
}  // namespace detail

/// The largest EngineOptions::pollers.
inline constexpr std::uint32_t kMaxPollers = 64;
/// The most lanes of one session: the largest EngineOptions::lanes.
inline constexpr std::uint32_t kMaxLanes = 8;
/// The largest EngineOptions::arena_threads.
inline constexpr std::uint32_t kMaxArenaThreads = 256;

/// A change of state of a session.
struct SessionEvent {
  std::string server{};  ///< "host:port"
  TransportKind transport = TransportKind::kAuto;
  Reason reason = Reason::kNone;  ///< why the session was interrupted, ended or is being drained
};

/// Handlers for changes of sessions. A thread of the engine, or the thread that notices the change,
/// calls them at once, one at a time for each session and in order. They must not block: on_lost
/// and on_stale may open a region again by Engine::async_open_region (control.h). They may destroy
/// regions and sessions, except an object in whose function they are called, and must not destroy
/// the engine. An exception from them is logged and ignored. When the engine has been destroyed, no
/// handler runs any more. Each may be empty.
struct SessionHandlers {
  using Handler = std::function<void(const SessionEvent&)>;
  /// The session's lanes are gone; the engine connects again. Operations wait within their
  /// deadlines.
  Handler on_interrupted{};
  /// The session continues: the server has destroyed the old lanes, and its grants are unchanged.
  Handler on_resumed{};
  /// The session has ended for good: Reason::kLapsed if the server had given it up, kTooOften if it
  /// broke more often than `limits.resumes_per_minute`. The application must open its regions
  /// again.
  Handler on_lost{};
  /// The session has ended since the server runs with new memory: all bytes written before are
  /// lost.
  Handler on_stale{};
  /// The server is about to stop, or an administrator drains it (Reason::kDraining). Called once
  /// for each drain and for the stop. Before a stop the session works until `limits.drain_timeout`
  /// of the server is over, 5 s by default, or all sessions have left. A session that the
  /// application closes by then loses nothing.
  Handler on_drain{};
};

/// Traffic class, MTU, time-outs and the like of connections over rdma. The struct has the units,
/// ranges and defaults.
using RdmaOptions = config::RdmaSettings;

/// The options of an engine. exception: options, each with a default.
struct EngineOptions {
  /// The name that servers get; at most 64 bytes. Without a key it is only for their logs; with a
  /// key it is the name under which the servers have the key.
  std::string client_name = "remora";
  /// The client's key: the engine uses only servers that prove that they have the key too, and that
  /// ask for it. config::read_key_file() reads a key. Empty: only servers without `auth: keys`
  /// accept the client.
  std::optional<config::SecretKey> key{};
  /// The default deadline of an operation.
  std::chrono::nanoseconds operation_deadline = std::chrono::seconds{10};
  /// The deadline of connecting, opening and every other control request.
  std::chrono::nanoseconds control_deadline = std::chrono::seconds{10};
  /// How long Engine::open_region(), fence_region() and connect() try again while no server accepts
  /// the client: the server, or its name, does not exist yet, or the server is about to stop. With
  /// the pauses of `reconnect_for`; each attempt has `control_deadline`. A server's answer to a
  /// request is final, and a fence is requested once. 0: one attempt.
  std::chrono::nanoseconds connect_for{0};
  /// How long the engine tries to connect again when a session's lanes or its server are gone,
  /// first at once, then with pauses of up to 2 s. A server keeps the session and its grants for
  /// limits.session_lease and limits.session_keep. 0: the session ends instead.
  std::chrono::nanoseconds reconnect_for = std::chrono::seconds{30};
  /// Called when a session of this engine is interrupted, resumed, ended or drained.
  SessionHandlers handlers{};
  /// How long a waiting caller, or a poller without completions, polls before it sleeps.
  std::chrono::nanoseconds spin = std::chrono::microseconds{50};
  /// Send-queue depth of a lane, in work requests.
  std::uint32_t lane_depth = 512;
  /// Data paths of a session, 1 to kMaxLanes: queue pairs, or tcp streams; shm has always one. A
  /// queue stays on one lane, the next queue takes the next lane, and synchronous operations of a
  /// thread share one: so threads and queues delay each other less. Synchronous reads and writes of
  /// 2 MiB and more, of one piece and without a notice, go over all lanes at once. When one lane
  /// breaks, all are replaced. Over rdma half of the lanes may be for writes alone: see
  /// docs/transports.md, "Writes that pass waiting reads".
  std::uint32_t lanes = 1;
  /// Threads that copy one large transfer or batch over shm together, the caller's among them; 0:
  /// one for each processor, 4 at most; 1: only the caller's. Started when first needed.
  std::uint32_t copy_threads = 0;
  /// Threads that serve callback queues and queues of coroutines, at most kMaxPollers. The first is
  /// started with the first queue, the others while there are more queues than threads. 0: none,
  /// and no such queues.
  std::uint32_t pollers = 1;
  /// Threads of the arena, on which coroutines continue after Resume::on_arena(), at most
  /// kMaxArenaThreads; 0: one fewer than there are processors, but at least one. They are started
  /// with the first such queue, which fails if no thread can be started.
  std::uint32_t arena_threads = 0;
  /// Threads that run control calls which do not block their caller (control.h), at most
  /// kMaxControlThreads; started as calls need them. A call to a silent server occupies one of them
  /// until its deadline. 0: none, and no such calls.
  std::uint32_t control_threads = 4;
  /// Slots for buffers that are not registered: count × size is pinned on first use over rdma.
  std::uint32_t bounce_slot_count = 32;
  std::uint32_t bounce_slot_bytes = 64 * 1024;
  /// Over rdma, reads and writes of this length or more whose memory is not registered use a
  /// registration that the engine makes and keeps for the next use (verbs::MrCache), if the kernel
  /// reports changed mappings; all others are copied through the slots above.
  std::uint64_t mr_cache_from_bytes = std::uint64_t{64} << 10U;
  /// The most bytes that such registrations pin on each device; 0: no registration is kept.
  std::uint64_t mr_cache_bytes = std::uint64_t{1} << 30U;
  /// The pages under the application's slots and the bounce slots.
  HugePages huge_pages = HugePages::kAuto;
  /// When the pages of regions over shm are entered in the page table of this process
  /// (docs/memory.md).
  Populate populate = Populate::kLazy;
  /// Whether core dumps of this process contain slots and mapped regions (over shm). The engine
  /// does not change this for memory that the application has registered: madvise(2) with
  /// MADV_DONTDUMP keeps it out.
  bool core_dump = false;
  /// Where the engine's own threads (control, copying) run and its slots lie. They never leave the
  /// processors that affinity and cgroup allow this process. "auto", the default: on a machine with
  /// several memory nodes, threads run on the node of the RDMA device (`device`; empty: the node of
  /// all devices, if they have the same one), otherwise on the node of the thread that opens the
  /// engine; slots are on the device's node, otherwise on the node of the thread that allocates
  /// them; if a node has no free memory, another node is used. With one node the engine places
  /// nothing. "none": it never does. Or a list of processors for the threads, such as "0-3,8";
  /// slots are then on the device's node, otherwise on the node of the first processor.
  /// Engine::open refuses anything else, and processors that this process may not use, with
  /// kInvalidArgument. The log has the choice at level debug.
  std::string placement = "auto";
  /// Restricts rdma to one device, and binds its connections to an address of that device if the
  /// route leads over another one; empty: the device of the route to the server. When a device has
  /// gone that was not named here, its sessions resume over another one that reaches the server.
  std::string device{};
  /// How many devices the lanes of one session over rdma use: "1", "2" to "8", "auto" (as many as
  /// this host and the server have), or names of the client's devices ("mlx5_0,mlx5_1"); the URI's
  /// option overrides it. With "1" a session stays on its device. With more, a session has at least
  /// one lane on each pair of devices, whatever `lanes` says, up to kMaxLanes; when a device fails,
  /// the session continues over the others, and uses the failed one again when it answers. Memory
  /// is then registered with each device, and memory that is not registered is copied through
  /// slots, whatever `mr_cache_bytes` says. A write that was acknowledged over one device of the
  /// server is visible to a read over another one, and safe from being overwritten by an earlier
  /// write over it, only after flush_visible(). docs/rails.md.
  std::string rails = "1";
  /// How connections over rdma use the fabric; options of the URI override it.
  RdmaOptions rdma{};
  /// Over tcp, the bytes of reads and writes are also checked by CRC32C, and copied once more on
  /// both sides. A mismatch breaks the lane: the error of a read has
  /// CompletionStatus::kBadResponse, that of a write, which then has no effect,
  /// kRemoteOperationError.
  bool tcp_payload_crc = false;
  /// The registry for series; null: the engine makes its own.
  std::shared_ptr<metrics::Registry> registry{};
  /// For tests: testing::FaultTransport::hook(). Null: no faults are injected.
  std::shared_ptr<detail::FaultCore> faults{};
};

/// The data that a server sends about itself at the handshake.
struct ServerInfo {
  std::string name{};           ///< of the server's program, for logs
  std::uint64_t boot_id = 0;    ///< of the server's process when the session began
  std::uint64_t memory_id = 0;  ///< of the contents of its memory
  std::uint64_t pool_bytes = 0;
  std::uint64_t pool_free_bytes = 0;  ///< at the handshake: Session::usage() has the present value
  std::string device{};  ///< the server's RDMA device of this session; empty over shm and tcp
  /// The transports of the server. Empty: the server did not tell (an older version).
  std::vector<TransportKind> transports{};

  /// Whether the server told its transports, and `kind` was not among them.
  [[nodiscard]] bool surely_lacks(TransportKind kind) const noexcept {
    return !transports.empty() &&
           std::find(transports.begin(), transports.end(), kind) == transports.end();
  }
};

/// The used memory of a server: by this client's regions, and by all.
struct Usage {
  std::uint64_t client_bytes = 0;        ///< of regions that this client created
  std::uint64_t client_quota_bytes = 0;  ///< 0: no quota
  std::uint64_t pool_bytes = 0;
  std::uint64_t pool_used_bytes = 0;
  std::uint64_t pool_freeing_bytes = 0;  ///< removed, not yet zeroed
  std::uint64_t sessions = 0;            ///< of the server
  std::uint64_t grants = 0;              ///< of this session
};

/// A session with one server, for control requests: create, list, stat, remove. Copyable handle;
/// regions opened through the engine share the session if they can. Thread-safe. Requests block, at
/// most for the engine's control deadline; settled() blocks as its argument says; the async
/// functions do not block. Errors of all: kConnectionLost, kTimedOut, kProtocol; kClosed (the
/// handle was moved from: server() is then empty).
class Session {
 public:
  /// For the engine, whose connect() makes sessions.
  explicit Session(std::shared_ptr<detail::SessionCore> core) noexcept : core_{std::move(core)} {}

  /// What the server told at the handshake. Sends nothing. Valid as long as a copy of this handle.
  [[nodiscard]] const ServerInfo& server() const noexcept;
  /// The transport of the session; kAuto only if this handle was moved from.
  [[nodiscard]] TransportKind transport() const noexcept;
  /// False while the engine connects again, and for good once the session has ended.
  [[nodiscard]] bool connected() const noexcept;
  /// Blocks until no operation that has ended as kIndeterminate can take effect any more: the
  /// server has destroyed the lanes of these operations, or has other memory by now. Errors:
  /// kTimedOut; kConnectionLost: that cannot be known, since the server was not reached again.
  Status settled(std::chrono::nanoseconds deadline) const;
  /// The same without blocking (control.h); `options.deadline` is not used. Each call occupies one
  /// of EngineOptions::control_threads until it has ended.
  AsyncControl<Status> async_settled(std::chrono::nanoseconds deadline,
                                     const ControlOptions& options = {}) const;

  /// Errors: kAlreadyExists; kInvalidArgument; kOutOfMemory (with the requested and the largest
  /// possible size); kUnsupported (this server does not have the atomic domain or shm; an access
  /// list while clients have no keys); kLimitExceeded (also the client's quota); kNoRight (the
  /// client may not create regions).
  Result<RegionInfo> create_region(const RegionSpec& spec) const;
  /// The regions on which this client has any right, sorted by name.
  Result<std::vector<RegionInfo>> regions() const;
  /// Errors: kUnknownRegion.
  Result<RegionInfo> stat(std::string_view name) const;
  /// Removes the region; its memory is zeroed before it is used again. Errors: kUnknownRegion;
  /// kBusy while it is open (kIfUnused); kNoRight; kUnsupported (an older server supports only the
  /// default).
  Status remove_region(std::string_view name, Removal removal = Removal::kIfUnused) const;
  /// Gives the region another size: a positive multiple of its block size. Larger: its bytes stay,
  /// and zeros follow; clients that have it open still reach the old part, and reach all of it when
  /// they open it again. Smaller: all grants are revoked first (kAccessRefused, Reason::kRevoked),
  /// as Engine::fence_region does; clients must open it again. The removed bytes are zeroed before
  /// they are used again. Errors: kUnknownRegion; kNoRight; kInvalidArgument; kOutOfMemory;
  /// kLimitExceeded (the quota of its owner); kBusy (smaller, and the server's application holds a
  /// view); kUnsupported (a region for shm; an older server).
  Result<RegionInfo> resize_region(std::string_view name, std::uint64_t size_bytes) const;
  /// Errors: kUnsupported (a server of protocol version 1).
  Result<Usage> usage() const;
  /// The time until the server's control thread has answered, without waiting for requests of other
  /// clients. Errors: kConnectionLost, also while the engine connects again.
  Result<std::chrono::nanoseconds> ping() const;

  // For an administrator of the server: `clients[].admin`, or every client if `auth` is none.
  // Errors of all: kNoRight; kUnsupported (an older server).
  /// The server's sessions, sorted by id, also those that wait for their clients.
  Result<std::vector<SessionInfo>> sessions() const;
  /// Ends the session of that id, which its client cannot resume: its handlers get kRevoked. On
  /// return no request of the session reaches memory any more. The client may open regions again,
  /// in a new session. Errors: kNotFound; kInvalidArgument: the id is that of this session.
  Status end_session(std::uint64_t id) const;
  /// Begins a drain: the server tells each session (SessionHandlers::on_drain), also those that
  /// begin during the drain, and refuses to create and open regions (kBusy with kDraining), for
  /// every client. Open regions stay open, sessions resume, and regions can be fenced. `/readyz`
  /// answers 503. The server ends no session by itself: only its stop, or end_session(), does. A
  /// second call before end_drain() changes nothing. A restart ends the drain.
  Result<DrainState> drain() const;
  /// Ends the drain: regions can be created and opened again.
  Result<DrainState> end_drain() const;
  /// The present state; changes nothing.
  Result<DrainState> drain_state() const;

 private:
  detail::OwnedShared<detail::SessionCore> core_;
};

/// Slots, sessions and threads of one client. Move-only owner; regions, queues and pools that it
/// has made keep the parts alive that they need. An engine that was moved from answers kClosed:
/// status_json() is then "{}", and registry() an empty registry that such engines share.
///
/// In a child of fork(2), this and every other handle that the parent has made answers as if it was
/// moved from, with Reason::kForked, and destroying it does not touch the parent's objects. A child
/// opens an engine of its own. See docs/fork.md.
class Engine {
 public:
  /// Opens an engine; makes no connection yet. Errors: kInvalidArgument, kOutOfMemory.
  static Result<Engine> open(const EngineOptions& options);
  /// Ends unfinished control calls with kClosed, and waits for their callbacks on a poller or the
  /// arena: 2 s at most. Blocks until its devices have released all of its objects: usually
  /// milliseconds. Does not wait for servers; docs/blocking.md says for what the end of a session
  /// waits. If the application holds no object of the engine any more, the engine's threads have
  /// ended on return, except the thread that destroys it, and control threads that wait in a call
  /// for a server or a name server: such a thread ends with its attempt, which then frees the rest
  /// of the engine.
  ~Engine();
  Engine(Engine&&) noexcept;
  /// Ends the engine that this object had, as the destructor does.
  Engine& operator=(Engine&&) noexcept;

  /// Connects if there is no session yet, and requests a grant. `auto`: shm if server and region
  /// allow it, else rdma over hardware, else tcp. A named transport never falls back; rxe and siw
  /// are used only when rdma is named. Errors: kInvalidArgument (URI), kUnknownRegion, kNoRight,
  /// kUnsupported (no transport fits; the log says why each was left out; reads or atomics over
  /// devices that keep none in flight), kConnectionRefused (kAuthentication: the server does not
  /// have this name and key, asks for no key, or cannot prove that it has the key), kUnreachable,
  /// kTimedOut.
  Result<Region> open_region(std::string_view uri, Rights rights) const;

  /// As open_region, but every older grant of the region is revoked first, in every session,
  /// including this one: the function returns when no request of these grants reaches the region
  /// any more. Their operations then fail with kAccessRefused and Reason::kFenced. Clients that
  /// stop within the server's `limits.revoke_grace` notice nothing else; a client that does not
  /// stop loses a lane. Errors: also kBusy (over shm, where the server cannot unmap memory: a
  /// client that has it mapped does not answer); kUnsupported (an older server).
  Result<Region> fence_region(std::string_view uri, Rights rights) const;

  /// A session for control requests; the URI's region is ignored. Errors: as open_region.
  Result<Session> connect(std::string_view uri) const;

  /// The same without blocking: see control.h. Errors: also those of AsyncControl.
  AsyncControl<Result<Region>> async_open_region(std::string_view uri, Rights rights,
                                                 const ControlOptions& options = {}) const;
  /// As async_open_region(), for fence_region().
  AsyncControl<Result<Region>> async_fence_region(std::string_view uri, Rights rights,
                                                  const ControlOptions& options = {}) const;
  /// As async_open_region(), for connect().
  AsyncControl<Result<Session>> async_connect(std::string_view uri,
                                              const ControlOptions& options = {}) const;
  /// Any other function that blocks, on a control thread: `blocking`, a `Result<T>()` or
  /// `Status()` that can be copied.
  ///
  ///   const auto create = [session, spec] { return session.create_region(spec); };
  ///   auto made = co_await engine.async_control(create);
  ///
  /// (g++ 12 destroys a lambda's captures twice if the lambda is within the co_await expression:
  /// keep it in a variable, as here.)
  ///
  /// `blocking` should end within the call's deadline: the call does (kTimedOut), but the thread is
  /// free only when `blocking` returns. An exception from `blocking` ends the call with kSystem.
  template <typename F, typename R = detail::ControlResult<F>>
  requires std::constructible_from<R, Error> AsyncControl<R> async_control(
      F&& blocking, const ControlOptions& options = {})
  const {
    if (core_ == nullptr)
      return AsyncControl<R>{detail::closed_handle("control call", core_.foreign())};
    return {services(), "control call", control_options(options),
            [call = std::forward<F>(blocking)](const detail::ControlLimits& /*limits*/) mutable {
              return call();
            }};
  }

  /// `count` slots (1 to 1,048,575) of `slot_bytes` each (1 byte to 1 GiB), each aligned to 64
  /// bytes. Errors: kInvalidArgument (the subject says which of the two), kOutOfMemory. They are
  /// registered with a device at their first use there; a failure to register (memlock) is the
  /// error of the operation that needed it.
  Result<SlotPool> allocate_slots(std::size_t count, std::size_t slot_bytes) const;

  /// Makes operations on application memory possible without copies. `bytes` is borrowed: see
  /// RegisteredMemory. Blocks while the devices in use pin the pages. A failure to register is the
  /// error of the operation that needs the registration. Errors: kInvalidArgument (empty).
  Result<RegisteredMemory> register_memory(std::span<std::byte> bytes) const;

  /// The registry with the engine's series: that of EngineOptions::registry, otherwise its own,
  /// which is valid as long as the engine.
  [[nodiscard]] metrics::Registry& registry() const noexcept;
  /// The sessions, their transports and the reasons for these, and the open regions, as a JSON
  /// object (docs/status.md): for metrics::HttpOptions::status. Does not block for operations.
  [[nodiscard]] std::string status_json() const;
  /// The same with another part of its sessions: for metrics::HttpOptions::status_page.
  [[nodiscard]] std::string status_json(const metrics::StatusQuery& query) const;

 private:
  friend class detail::EngineShare;
  explicit Engine(std::shared_ptr<detail::EngineCore> core) noexcept;
  void leave() noexcept;
  [[nodiscard]] std::shared_ptr<detail::EngineServices> services() const noexcept;
  [[nodiscard]] ControlOptions control_options(const ControlOptions& options) const;
  detail::OwnedShared<detail::EngineCore> core_;
};

}  // namespace remora
