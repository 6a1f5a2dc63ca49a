#pragma once

/// The client side: one Engine a process is the usual number.

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
class FaultCore;
class SessionCore;
}  // namespace detail

inline constexpr std::uint32_t kMaxPollers = 64;
inline constexpr std::uint32_t kMaxLanes = 8;
inline constexpr std::uint32_t kMaxArenaThreads = 256;

/// A change of state of a session.
struct SessionEvent {
  std::string server{};  ///< "host:port"
  TransportKind transport = TransportKind::kAuto;
  Reason reason = Reason::kNone;
};

/// Called as it happens, by a thread of the engine's or by the one that finds out, one at a time
/// for each session and in order. They must not block: on_lost and on_stale may open again by
/// Engine::async_open_region (control.h). They may let go of regions and sessions, but for one in
/// whose call they are called, and may not destroy the engine. What they throw is logged
/// and ignored. When the engine has been destroyed none of them runs, or will. Any may be empty.
struct SessionHandlers {
  using Handler = std::function<void(const SessionEvent&)>;
  /// Its lanes are gone; the engine connects again. Operations wait within their deadlines.
  Handler on_interrupted{};
  /// It goes on: the server has destroyed the old lanes, its grants are as they were.
  Handler on_resumed{};
  /// It has ended for good: Reason::kLapsed when the server had given it up, kTooOften when it
  /// broke more often than `limits.resumes_per_minute`; what was open is to be opened again.
  Handler on_lost{};
  /// It has ended since the server runs with new memory: what was written before is gone.
  Handler on_stale{};
  /// The server is about to stop (Reason::kDraining); once for each session, which works until it
  /// does: `limits.drain_timeout` of the server later, 5 s by default, or when all have left. A
  /// session that is let go of by then loses nothing.
  Handler on_drain{};
};

/// Traffic class, MTU, time-outs and the like of connections over rdma. The struct has the units,
/// ranges and defaults.
using RdmaOptions = config::RdmaSettings;

/// What an application may set. exception: options, each with a default.
struct EngineOptions {
  /// Told to servers; at most 64 bytes. For their logs, unless there is a key: then it is the name
  /// that the servers know the key by.
  std::string client_name = "remora";
  /// The client's key: only servers that prove to know it too are talked to, and they ask for it.
  /// config::read_key_file() reads one. Empty: only servers without `auth: keys` let it in.
  std::optional<config::SecretKey> key{};
  /// Deadline of an operation that names none.
  std::chrono::nanoseconds operation_deadline = std::chrono::seconds{10};
  /// Deadline of connecting, opening and every other control request.
  std::chrono::nanoseconds control_deadline = std::chrono::seconds{10};
  /// How long Engine::open_region(), fence_region() and connect() try again where no server lets
  /// the client in: the server, or its name, is not there yet, or it is about to stop. With the
  /// pauses of `reconnect_for`; each attempt has `control_deadline`. What the server has answered
  /// is an answer, and a fence is asked for once. 0: one attempt.
  std::chrono::nanoseconds connect_for{0};
  /// How long the engine tries to connect again when a session's lanes or its server are gone,
  /// first at once, then with pauses of up to 2 s; a server keeps what the session had for
  /// limits.session_lease and limits.session_keep. 0: the session ends instead.
  std::chrono::nanoseconds reconnect_for = std::chrono::seconds{30};
  SessionHandlers handlers{};
  /// How long a waiting caller, or a poller that nothing ends for, polls before it sleeps.
  std::chrono::nanoseconds spin = std::chrono::microseconds{50};
  /// Send-queue depth of a lane, in work requests.
  std::uint32_t lane_depth = 512;
  /// Data paths of a session, 1 to kMaxLanes: queue pairs, or tcp streams; shm has always one. A
  /// queue stays on one, the next queue takes the next, and synchronous operations of a thread
  /// share one: threads and queues then hinder each other less. Synchronous reads and writes of 2
  /// MiB and more, of one piece and without a notice, go over all of them at once. When one breaks,
  /// all are followed by new ones.
  std::uint32_t lanes = 1;
  /// Threads that copy one large transfer or batch over shm together, the caller's among them; 0:
  /// as many as there are processors, 4 at most; 1: none but the caller's. Started when first
  /// needed.
  std::uint32_t copy_threads = 0;
  /// Threads that serve callback queues and those of coroutines, at most kMaxPollers; one is
  /// started with the first queue, the others while there are more queues than threads. 0: none,
  /// and no such queues.
  std::uint32_t pollers = 1;
  /// Threads on which coroutines go on that are resumed on the arena (Resume::on_arena()), at most
  /// kMaxArenaThreads; 0: one fewer than there are processors, but one at least. They are
  /// started with the first such queue, which fails where not one is to be had.
  std::uint32_t arena_threads = 0;
  /// Threads that run control calls which do not block their caller (control.h), at most
  /// kMaxControlThreads; started as calls need them. A call to a server that stays silent keeps one
  /// until its deadline. 0: none, and no such calls.
  std::uint32_t control_threads = 4;
  /// Slots for buffers that are not registered: count × size is pinned on first use over rdma.
  std::uint32_t bounce_slot_count = 32;
  std::uint32_t bounce_slot_bytes = 64 * 1024;
  /// Over rdma, reads and writes of so many bytes and more whose memory is not registered use a
  /// registration of it that the engine keeps for the next time (verbs::MrCache), where the kernel
  /// tells of changed mappings; all others are copied through the slots above.
  std::uint64_t mr_cache_from_bytes = std::uint64_t{64} << 10U;
  /// Bytes that such registrations pin at most, on each device; 0: none are kept.
  std::uint64_t mr_cache_bytes = std::uint64_t{1} << 30U;
  /// The pages under slots: the application's, and the bounce slots. Default: the best there are.
  HugePages huge_pages = HugePages::kAuto;
  /// When the pages of regions over shm are entered in the page table of this process
  /// (docs/memory.md).
  Populate populate = Populate::kLazy;
  /// Whether core dumps of this process contain slots and what is mapped of regions (over shm), as
  /// they do its other memory. Memory that the application has registered is the application's:
  /// madvise(2) with MADV_DONTDUMP keeps it out.
  bool core_dump = false;
  /// Where the engine's own threads (control, copying) run and its slots lie. They never leave the
  /// processors that affinity and cgroup allow this process. "auto", the default: on a machine with
  /// several memory nodes, threads on that of the RDMA device (`device`; empty: that of all
  /// devices, if it is one), else on that of the thread that opens the engine; slots on the
  /// device's, else on that of the thread that allocates them; while a node has no memory, another
  /// one gives. With one node nothing is done. "none": nothing ever is. Or processors for the
  /// threads, such as "0-3,8"; slots then lie with the device, else with the first of them.
  /// Engine::open refuses anything else, and processors that this process may not use, with
  /// kInvalidArgument. The log has the choice at level debug.
  std::string placement = "auto";
  /// Restricts rdma to one device, and binds its connections to an address of it where the route
  /// leads over another one; empty: the one that routes to the server.
  std::string device{};
  /// How many devices the lanes of one session over rdma use: "1", "2" to "8", "auto" (as many as
  /// this host and the server have), or names of devices here ("mlx5_0,mlx5_1"); what a URI says
  /// goes before it. With "1" a session stays on its device. With more, a session has a lane on
  /// each pair of devices at least, whatever `lanes` says, up to kMaxLanes; when one fails, it goes
  /// on over those that are left, and takes the one that failed again when it answers. Memory is
  /// then registered with each device, and what is not registered goes through slots, whatever
  /// `mr_cache_bytes` says. A write that was acknowledged over one device of the server is seen by
  /// a read over another one, and not undone by a write there, after flush_visible() only.
  /// docs/hardware.md, "Rails".
  std::string rails = "1";
  /// How connections over rdma use the fabric; what a URI says goes before it.
  RdmaOptions rdma{};
  /// Over tcp, what is read and written is checked by CRC32C as well, and copied once more on
  /// either side. A mismatch breaks the lane: the error of a read has
  /// CompletionStatus::kBadResponse, that of a write, which then has no effect,
  /// kRemoteOperationError.
  bool tcp_payload_crc = false;
  /// Where series go; null: a registry of the engine's own.
  std::shared_ptr<metrics::Registry> registry{};
  /// For tests: testing::FaultTransport::hook(). Null: there are no faults but the real ones.
  std::shared_ptr<detail::FaultCore> faults{};
};

/// What a server has told of itself at the handshake.
struct ServerInfo {
  std::string name{};
  std::uint64_t boot_id = 0;    ///< one life of the server process, as the session began
  std::uint64_t memory_id = 0;  ///< one life of its memory's contents
  std::uint64_t pool_bytes = 0;
  std::uint64_t pool_free_bytes = 0;
  std::string device{};  ///< the server's RDMA device of this session; empty over shm and tcp
  /// The transports of the server. Empty: it did not tell (an older one).
  std::vector<TransportKind> transports{};

  /// Whether the server said what it offers, and `kind` was not in it.
  [[nodiscard]] bool surely_lacks(TransportKind kind) const noexcept {
    return !transports.empty() &&
           std::find(transports.begin(), transports.end(), kind) == transports.end();
  }
};

/// Memory of a server in use: by this client's regions, and by all.
struct Usage {
  std::uint64_t client_bytes = 0;        ///< of regions that this client created
  std::uint64_t client_quota_bytes = 0;  ///< 0: none
  std::uint64_t pool_bytes = 0;
  std::uint64_t pool_used_bytes = 0;
  std::uint64_t pool_freeing_bytes = 0;  ///< removed, not yet zeroed
  std::uint64_t sessions = 0;            ///< of the server
  std::uint64_t grants = 0;              ///< of this session
};

/// A session of a server, as an administrator of the server sees it.
struct SessionInfo {
  std::uint64_t id = 0;        ///< never 0
  std::string client_name{};   ///< EngineOptions::client_name
  bool client_proven = false;  ///< by its key
  TransportKind transport = TransportKind::kAuto;
  std::string peer{};    ///< where the client is, as the transport says it
  std::string device{};  ///< the server's RDMA device; empty over shm and tcp
  /// Since its connection was accepted, or that by which its client has resumed it.
  std::chrono::milliseconds age{0};
  std::uint64_t open_regions = 0;  ///< one that is open twice counts twice
  bool lost = false;               ///< it waits for its client to resume it: limits.session_keep
  bool own = false;                ///< the session that has asked
};

/// How far the drain of a server is.
struct DrainState {
  bool draining = false;
  std::chrono::milliseconds remaining{0};  ///< of limits.drain_timeout
  std::uint64_t sessions = 0;              ///< with a client, but for the one that asks
  std::uint64_t lost_sessions = 0;         ///< SessionInfo::lost
  std::uint64_t open_regions = 0;          ///< of all sessions
};

/// An authenticated relation with one server, for what is not data: create, list, stat, remove.
/// Copyable handle; regions opened through the engine share the session where they can.
/// Thread-safe. Requests block, at most the engine's control deadline; settled() as its argument
/// says; the async functions do not block.
/// Errors of all: kConnectionLost, kTimedOut, kProtocol; kClosed (it was moved from: server() is
/// then an empty one).
class Session {
 public:
  explicit Session(std::shared_ptr<detail::SessionCore> core) noexcept : core_{std::move(core)} {}

  [[nodiscard]] const ServerInfo& server() const noexcept;
  [[nodiscard]] TransportKind transport() const noexcept;
  /// False while the engine connects again, and for good once the session has ended.
  [[nodiscard]] bool connected() const noexcept;
  /// Blocks until nothing that has ended as kIndeterminate can take effect any more: the server
  /// has destroyed the lanes it was on, or has other memory by now. Errors: kTimedOut;
  /// kConnectionLost: that cannot be known, since the server was not reached again.
  Status settled(std::chrono::nanoseconds deadline) const;
  /// The same without blocking (control.h); `options.deadline` is not used. Each keeps one of
  /// EngineOptions::control_threads until it has ended.
  AsyncControl<Status> async_settled(std::chrono::nanoseconds deadline,
                                     const ControlOptions& options = {}) const;

  /// Errors: kAlreadyExists; kInvalidArgument; kOutOfMemory (asked, largest possible); kUnsupported
  /// (atomic domain or shm that this server cannot give; an access list where clients have no
  /// keys); kLimitExceeded (also the client's quota); kNoRight (it may not create any).
  Result<RegionInfo> create_region(const RegionSpec& spec) const;
  /// The regions that this client may use in some way, sorted by name.
  Result<std::vector<RegionInfo>> regions() const;
  /// Errors: kUnknownRegion.
  Result<RegionInfo> stat(std::string_view name) const;
  /// Its memory is zeroed before it is used again. Errors: kUnknownRegion; kBusy while it is open
  /// (kIfUnused); kNoRight; kUnsupported (an older server knows no other removal).
  Status remove_region(std::string_view name, Removal removal = Removal::kIfUnused) const;
  /// Gives the region another size: a positive multiple of its block size. Larger: what is there
  /// stays, zeros follow; clients that have it open keep what they reach, and reach all when they
  /// open it again. Smaller: all grants are taken back first (kAccessRefused, Reason::kRevoked), as
  /// Engine::fence_region does; open it again. What is cut off is zeroed before it is used again.
  /// Errors: kUnknownRegion; kNoRight; kInvalidArgument; kOutOfMemory; kLimitExceeded (the quota of
  /// its owner); kBusy (smaller, and the server's application holds a view); kUnsupported (a region
  /// for shm; an older server).
  Result<RegionInfo> resize_region(std::string_view name, std::uint64_t size_bytes) const;
  /// Errors: kUnsupported (a server of protocol version 1).
  Result<Usage> usage() const;
  /// The time until the server's control thread has answered. It does not wait for requests of
  /// other clients. Errors: kConnectionLost, also while the engine connects again.
  Result<std::chrono::nanoseconds> ping() const;

  // For an administrator of the server: `clients[].admin`, or every client where `auth` is none.
  // Errors of all: kNoRight; kUnsupported (an older server).
  /// The server's sessions, sorted by id, also those that wait for their clients.
  Result<std::vector<SessionInfo>> sessions() const;
  /// Ends the session of that id, which its client cannot resume: its handlers get kRevoked. On
  /// return nothing of it reaches memory any more. The client may open regions again, in a new
  /// session. Errors: kNotFound; kInvalidArgument: the id is that of this session.
  Status end_session(std::uint64_t id) const;
  /// Begins a drain: the server tells each session (SessionHandlers::on_drain, once for each
  /// session), and refuses to create, open and fence regions (kBusy with kDraining), for every
  /// client. What is open stays, and sessions resume. `/readyz` answers 503. The server ends no
  /// session by itself: its stop, or end_session(), does. Once more: tells the sessions that have
  /// come since. A restart ends the drain.
  Result<DrainState> drain() const;
  /// Ends it: regions are created and opened again.
  Result<DrainState> end_drain() const;
  /// Changes nothing.
  Result<DrainState> drain_state() const;

 private:
  detail::OwnedShared<detail::SessionCore> core_;
};

/// Slots, sessions and threads of one client. Move-only owner; regions, queues and pools made by it
/// keep what they need alive. One that was moved from answers kClosed: status_json() is then "{}",
/// and registry() an empty registry that such engines share.
///
/// In a child of fork(2), this and every other handle that the parent made answers as one that was
/// moved from, with Reason::kForked, and destroying it touches nothing of the parent's. A child
/// opens an engine of its own. See docs/fork.md.
class Engine {
 public:
  /// No I/O yet. Errors: kInvalidArgument, kOutOfMemory.
  static Result<Engine> open(const EngineOptions& options);
  /// Ends control calls that are under way with kClosed, and waits for their callbacks on a poller
  /// or the arena: 2 s at most.
  /// Blocks until its devices have taken back what they have: milliseconds, as a rule. Waits for no
  /// server; docs/blocking.md has what the end of a session waits for. Where nothing of it
  /// is left with the application, its threads have ended, but for one that destroys it, and for
  /// control threads that wait in a call for a server or a name server: such a thread ends with its
  /// attempt, and what the engine had goes then.
  ~Engine();
  Engine(Engine&&) noexcept;
  Engine& operator=(Engine&&) noexcept;

  /// Connects where there is no session yet, and asks for a grant.
  /// `auto`: shm where server and region allow it, else rdma over hardware, else tcp. A named
  /// transport never falls back; rxe and siw are used only when rdma is named.
  /// Errors: kInvalidArgument (URI), kUnknownRegion, kNoRight, kUnsupported (no transport fits; the
  /// log says why each was left; reads or atomics over devices that keep none in flight),
  /// kConnectionRefused (kAuthentication: name and key are not the server's, or it asks for none or
  /// has none to show), kUnreachable, kTimedOut.
  Result<Region> open_region(std::string_view uri, Rights rights) const;

  /// As open_region, but every grant of the region that is older is taken back first, in every
  /// session and this one too: it returns when nothing of them reaches the region any more. Their
  /// operations then fail with kAccessRefused and Reason::kFenced. Clients that stop within the
  /// server's `limits.revoke_grace` notice nothing else; of those that do not, a lane breaks.
  /// Errors: also kBusy (over shm, where the server cannot unmap memory: a client that has it
  /// mapped does not answer); kUnsupported (an older server).
  Result<Region> fence_region(std::string_view uri, Rights rights) const;

  /// A session for control requests; the URI's region is ignored. Errors: as open_region.
  Result<Session> connect(std::string_view uri) const;

  /// The same without blocking: see control.h. Errors: also of AsyncControl.
  AsyncControl<Result<Region>> async_open_region(std::string_view uri, Rights rights,
                                                 const ControlOptions& options = {}) const;
  AsyncControl<Result<Region>> async_fence_region(std::string_view uri, Rights rights,
                                                  const ControlOptions& options = {}) const;
  AsyncControl<Result<Session>> async_connect(std::string_view uri,
                                              const ControlOptions& options = {}) const;
  /// Any other function that blocks, on a control thread: `blocking`, a `Result<T>()` or
  /// `Status()` that can be copied.
  ///
  ///   const auto create = [session, spec] { return session.create_region(spec); };
  ///   auto made = co_await engine.async_control(create);
  ///
  /// (g++ 12 destroys a lambda's captures twice where the lambda stands within the co_await
  /// expression: keep it in a variable, as here.)
  ///
  /// It should end within the call's deadline: the call does (kTimedOut), but the thread is free
  /// only when `blocking` returns. What it throws ends the call with kSystem.
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

  /// `count` slots (1 to 1,048,575) of `slot_bytes` each (1 byte to 1 GiB), every one aligned to 64
  /// bytes. Errors: kInvalidArgument (the subject says which of the two), kOutOfMemory. Registered
  /// with a device when first used there; a failure to register (memlock)
  /// is the error of the operation that needed it.
  Result<SlotPool> allocate_slots(std::size_t count, std::size_t slot_bytes) const;

  /// Makes application memory usable without copies. Errors: kInvalidArgument (empty).
  Result<RegisteredMemory> register_memory(std::span<std::byte> bytes) const;

  [[nodiscard]] metrics::Registry& registry() const noexcept;
  /// Its sessions, their transports and why these, and the regions that are open, as a JSON object
  /// (docs/status.md): for metrics::HttpOptions::status. Does not block for operations.
  [[nodiscard]] std::string status_json() const;
  /// The same with another part of its sessions: for metrics::HttpOptions::status_page.
  [[nodiscard]] std::string status_json(const metrics::StatusQuery& query) const;

 private:
  explicit Engine(std::shared_ptr<detail::EngineCore> core) noexcept;
  void leave() noexcept;
  [[nodiscard]] std::shared_ptr<detail::EngineServices> services() const noexcept;
  [[nodiscard]] ControlOptions control_options(const ControlOptions& options) const;
  detail::OwnedShared<detail::EngineCore> core_;
};

}  // namespace remora
