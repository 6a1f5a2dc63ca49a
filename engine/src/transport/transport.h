#pragma once

/// The transport seam: what the engine asks of rdma, shm, tcp and whatever comes next.
///
/// A session is one control channel (bounded messages, both ways) and lanes (data). A lane is
/// crossed once a chain of work requests, never once a request. Everything above this file is the
/// same for all transports; everything below knows nothing of regions, operations or protobuf.
///
/// Naming: an *endpoint* is one side of one session's transport.

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include <remora/config/server_config.h>
#include <remora/engine/types.h>
#include <remora/engine/uri.h>
#include <remora/metrics/recorder.h>
#include <remora/result.h>
#include <remora/verbs/address.h>

#include "base/clock.h"
#include "base/unique_fd.h"

namespace remora::metrics {
class Registry;
}

namespace remora::transport {

class RkeyTable;

/// Longest control message, on every transport.
inline constexpr std::size_t kControlMessageBytesMax = std::size_t{16} * 1024;
/// Requests a session may have unanswered: the receiver keeps room for so many.
inline constexpr std::size_t kControlRequestsMax = 8;

/// One message of the control channel; descriptors travel over shm only.
struct ControlMessage {
  std::vector<std::byte> bytes;
  std::vector<UniqueFd> descriptors;
};

enum class Opcode : std::uint8_t {
  kRead,
  kWrite,
  kCompareSwap,
  kFetchAdd,
  kWriteZeroes,  ///< over lanes whose limits say so; no local memory
  kNotify,       ///< tells the serving application; see WorkRequest
  kFlush,  ///< reads a byte into the lane's own memory: what was written before is visible then
};

inline constexpr std::size_t kOpcodes = static_cast<std::size_t>(Opcode::kFlush) + 1;

[[nodiscard]] constexpr bool is_atomic(Opcode opcode) noexcept {
  return opcode == Opcode::kCompareSwap || opcode == Opcode::kFetchAdd;
}
/// Moves bytes between local and remote memory.
[[nodiscard]] constexpr bool is_transfer(Opcode opcode) noexcept {
  return opcode == Opcode::kRead || opcode == Opcode::kWrite;
}
[[nodiscard]] constexpr bool is_write(Opcode opcode) noexcept {
  return opcode == Opcode::kWrite || opcode == Opcode::kWriteZeroes;
}
[[nodiscard]] constexpr Rights right_for(Opcode opcode) noexcept {
  if (is_atomic(opcode)) return Rights::kAtomic;
  return is_write(opcode) ? Rights::kWrite : Rights::kRead;
}

/// What a client tells the serving application of a write. The server believes none of it.
struct Notice {
  std::uint64_t grant_id = 0;
  std::uint64_t offset_bytes = 0;
  std::uint64_t length_bytes = 0;
  std::uint32_t tag = 0;  ///< the client's own
};
/// Notices of one session that the serving application has not handled; its client waits then.
inline constexpr std::size_t kNoticesMax = 256;

/// One request. Plain data, filled by the engine, translated by the lane. Of kNotify:
/// remote_address is the offset in the region, compare_or_add the length, swap the grant's id,
/// remote_key the tag.
struct WorkRequest {
  /// Of reads and writes; an atomic's result lands in atomic_results().
  std::byte* local = nullptr;
  std::uint32_t length_bytes = 0;
  std::uint32_t local_key = 0;
  std::uint64_t remote_address = 0;  ///< as the grant's extent says
  std::uint32_t remote_key = 0;      ///< or a token of it: see ClientEndpoint::use_lane_keys()
  Opcode opcode = Opcode::kRead;
  std::uint64_t compare_or_add = 0;
  std::uint64_t swap = 0;
};

/// Requests that go together, in order. They stay the engine's, and are not looked at after post().
using Chain = std::span<const WorkRequest* const>;

/// The fate of requests. Requests of a lane complete in the order they were posted: `sequence`
/// completes, and with it all before it that have not been told of yet (those successfully).
struct LaneCompletion {
  std::uint64_t sequence;
  CompletionStatus status;
  std::uint32_t vendor_error;
};

/// What posting a chain came to: the first `taken` requests are, or may be, with the lane; the rest
/// provably is not. Fewer than all only together with an error.
struct PostOutcome {
  std::size_t taken = 0;
  int error = 0;  ///< errno of the refusal; the lane is of no use any more
};

/// Memory registered with a device; deregistered on destruction.
class Registration {
 public:
  virtual ~Registration() = default;
  [[nodiscard]] virtual std::uint32_t local_key() const noexcept = 0;
};

/// The use of a kept registration by one operation. A plain value: whoever gets one gives it back
/// to the cache that it is of, once.
struct MemoryLease {
  void* registration = nullptr;
  [[nodiscard]] explicit operator bool() const noexcept { return registration != nullptr; }
};

/// Registrations of memory that is not the engine's, kept for its next use. Thread-safe.
class RegistrationCache {
 public:
  struct Options {
    std::uint64_t bytes_max = 0;
    std::shared_ptr<metrics::Registry> registry{};  ///< gets the cache's series
  };
  struct Key {
    std::uint32_t local_key;
    std::uint64_t length_bytes;  ///< so many bytes from there on have it
  };
  virtual ~RegistrationCache() = default;
  /// Null where there is none to be had: memory whose changes are not noticed, a budget that is
  /// spent, a registration that fails. Takes no lock where the bytes were used before; else blocks
  /// while pages are pinned, until `deadline` at most (looked at between pieces).
  virtual MemoryLease lease(std::span<std::byte> bytes, Deadline deadline) noexcept = 0;
  /// Only what is there already: never blocks.
  virtual MemoryLease find(std::span<std::byte> bytes) noexcept = 0;
  /// Never blocks.
  virtual void give_back(MemoryLease lease) noexcept = 0;
  /// Makes room under the process's limit of locked memory. True: something went.
  virtual bool trim() noexcept = 0;
  /// The key of a part of what was leased, from its beginning on.
  [[nodiscard]] virtual Key key_of(MemoryLease lease, std::span<std::byte> part) const noexcept = 0;
};

/// Where local memory is registered: a device's protection domain, shared by all sessions on it.
class MemoryDomain {
 public:
  virtual ~MemoryDomain() = default;
  /// Blocks while pages are pinned. Errors: kOutOfMemory (see Reason::kMemlock), kProvider.
  virtual Result<std::unique_ptr<Registration>> register_bytes(std::span<std::byte> bytes) = 0;
  /// Null where registrations cannot be kept; the log says why.
  virtual std::shared_ptr<RegistrationCache> make_cache(const RegistrationCache::Options& options) {
    (void)options;
    return nullptr;
  }
};

/// One data path. Not thread-safe: the engine serialises post, poll, arm; move_to_error may come
/// from any thread.
class Lane {
 public:
  struct Limits {
    std::uint32_t depth = 0;               ///< requests posted and not completed
    std::uint32_t transfer_bytes_max = 0;  ///< of one request
    std::uint32_t inline_bytes_max = 0;    ///< writes up to here need no local key
    bool writes_zeroes = false;            ///< takes Opcode::kWriteZeroes
    /// Reads and atomics that are answered at a time; others wait within the lane, in their order.
    /// 0: it takes none.
    std::uint32_t initiator_depth = std::numeric_limits<std::uint32_t>::max();
  };
  virtual ~Lane() = default;

  [[nodiscard]] virtual const Limits& limits() const noexcept = 0;
  /// Posts `chain` with one doorbell; its requests get the sequences first_sequence, +1, … . The
  /// caller keeps within Limits::depth. Only the chain's end (and every so often within it) is
  /// signaled; a lane may tell of several requests by one LaneCompletion.
  virtual PostOutcome post(Chain chain, std::uint64_t first_sequence) noexcept = 0;
  /// Of the chain posted last, unless that was a single request: of those taken, how many are
  /// signaled, its end not counted.
  [[nodiscard]] std::uint32_t signaled_within() const noexcept { return signaled_within_; }
  /// From now on `counter` gets what goes to the device inline, by whoever posts.
  virtual void count_inline(metrics::Recorder recorder, metrics::Counter counter) noexcept {
    (void)recorder, (void)counter;
  }
  virtual std::size_t poll(std::span<LaneCompletion> completions) noexcept = 0;
  /// Old values of atomics: that of sequence s at s & (size - 1), valid from its completion until
  /// the sequence s + size is posted. Size is a power of two ≥ Limits::depth.
  [[nodiscard]] virtual std::span<const std::uint64_t> atomic_results() const noexcept = 0;

  /// Asks for event_fd() to become readable at the next completion. Poll once more after arming.
  virtual Status arm() noexcept = 0;
  /// Takes the events that made event_fd() readable.
  virtual void drain_events() noexcept = 0;
  /// Readable after a completion that followed arm().
  [[nodiscard]] virtual int event_fd() const noexcept = 0;

  /// Moves the lane to its error state: what is posted completes (flushed), soon. Idempotent.
  virtual void move_to_error() noexcept = 0;
  /// Ends the lane: on return nothing touches local memory any more, completions not polled are
  /// gone. Idempotent.
  virtual void close() noexcept = 0;
  /// close() of a lane that is broken, or was never used, and on which nothing is posted: what the
  /// device is slow to give back may be given back later, by a thread of the transport's. Nobody
  /// waits for it.
  virtual void let_go() noexcept { close(); }

  /// Receive-queue-like occupancy for metrics: capacity of the completion queue.
  [[nodiscard]] virtual std::uint32_t completion_capacity() const noexcept = 0;

 protected:
  std::uint32_t signaled_within_ = 0;
};

/// Remote memory that is mapped into this process: no lane is needed, the engine copies itself.
struct DirectPath {
  /// What this word holds while the server serves; any other value: it is gone. Null: always.
  const std::uint32_t* state = nullptr;
  std::uint32_t serving_value = 0;
  std::shared_ptr<void> hold;  ///< keeps `state` mapped

  [[nodiscard]] bool serving() const noexcept {
    // The page may be mapped read-only; reading it atomically needs no write.
    return state == nullptr || __atomic_load_n(state, __ATOMIC_RELAXED) == serving_value;
  }
};

/// A stretch of a region as it crosses the control channel.
struct WireExtent {
  std::uint64_t start_bytes = 0;  ///< offset in the region
  std::uint64_t length_bytes = 0;
  /// rdma: virtual address; shm: offset in the region's memfd; tcp: offset in the region
  std::uint64_t remote_address = 0;
  std::uint32_t remote_key = 0;  ///< rdma: rkey; tcp: index and generation in the session's table
};

/// Keys that differ from lane to lane: of extent `e` on lane `l` it is keys[e * lanes + l]; 0:
/// there is no such lane.
struct LaneKeys {
  std::size_t lanes = 0;
  std::vector<std::uint32_t> keys{};
};

/// A grant as the client uses it: remote_address made usable for WorkRequest, kept alive by `hold`.
struct AttachedGrant {
  std::vector<WireExtent> extents;
  std::shared_ptr<void> hold;
};

/// What both sides agreed on in the hello, as far as transports need it.
struct LaneTicket {
  std::uint64_t session_id = 0;
  std::uint64_t secret = 0;  ///< ties a lane to its session; not proof against an eavesdropper
};

/// The client's side of one session's transport.
///
/// send() from any thread, one at a time; receive() by one thread.
class ClientEndpoint {
 public:
  virtual ~ClientEndpoint() = default;
  [[nodiscard]] virtual TransportKind kind() const noexcept = 0;
  /// Name of the local device, or empty.
  [[nodiscard]] virtual const std::string& device() const noexcept = 0;

  virtual Status send(ControlMessage message, Deadline deadline) noexcept = 0;
  /// Readable when receive() has something to say.
  [[nodiscard]] virtual int event_fd() const noexcept = 0;
  /// A message, nothing yet, or the error that ended the channel. Never blocks.
  virtual Result<std::optional<ControlMessage>> receive() noexcept = 0;

  /// Waits until what was sent has left, at most until `deadline`: before a shutdown that would
  /// take it back.
  virtual void flush(Deadline deadline) noexcept { (void)deadline; }
  /// Set where grants are mapped: open_lane() is then never called.
  [[nodiscard]] virtual std::optional<DirectPath> direct_path() const noexcept {
    return std::nullopt;
  }
  virtual Result<std::unique_ptr<Lane>> open_lane(const LaneTicket& ticket, std::uint32_t depth,
                                                  Deadline deadline) noexcept = 0;
  /// The server has a key for each lane: those opened from here on tell it which they are, in the
  /// order in which they are opened, and WorkRequest::remote_key is a token of `keys`. Before the
  /// first lane. Errors: kUnsupported: there is one key for all lanes here.
  virtual Status use_lane_keys(std::shared_ptr<RkeyTable> keys) noexcept {
    (void)keys;
    return Error{Code::kUnsupported, "keys of lanes"};
  }
  /// Null where local memory needs no registration.
  [[nodiscard]] virtual std::shared_ptr<MemoryDomain> memory_domain() const noexcept = 0;
  /// Makes a grant usable: maps what came as descriptors.
  virtual Result<AttachedGrant> attach(std::vector<WireExtent> extents,
                                       std::vector<UniqueFd> descriptors,
                                       Rights rights) noexcept = 0;
  /// Ends control channel and lanes. Called by any thread; wakes a reader of event_fd().
  virtual void shutdown() noexcept = 0;
};

struct ConnectOptions {
  std::string device;  ///< rdma: only this one; empty: any
  bool hardware_only = false;
  bool payload_crc = false;  ///< tcp: a checksum of what is read and written, too
  bool core_dump = false;    ///< shm: core dumps of this process contain what is mapped
};

/// Connects to a server over one transport. Blocks, at most until `deadline`. Over shm to a server
/// that listens at the URI's host and port, on this host and in this network namespace, alone.
/// Errors: kConnectionRefused, kUnreachable, kTimedOut, kNotFound (no device), kUnsupported,
/// kPermissionDenied.
Result<std::unique_ptr<ClientEndpoint>> connect_shm(const Uri& uri, Deadline deadline,
                                                    const ConnectOptions& options = {});
Result<std::unique_ptr<ClientEndpoint>> connect_rdma(const Uri& uri, const ConnectOptions& options,
                                                     Deadline deadline);
/// Tries every address of the host, each for its share of the time.
Result<std::unique_ptr<ClientEndpoint>> connect_tcp(const Uri& uri, const ConnectOptions& options,
                                                    Deadline deadline);

/// A stretch of server memory, as a transport grants it.
struct MemoryStretch {
  std::byte* address = nullptr;
  std::uint64_t length_bytes = 0;
};

/// The memory of a region, as a transport sees it when it makes a grant.
struct GrantRequest {
  std::span<const MemoryStretch> extents;
  Rights rights = Rights::kNone;
  int memory_fd = -1;  ///< the region's own memfd when it may be mapped, else -1
  /// Atomics are the CPU's to carry out: the region's atomic domain is `cpu`.
  bool cpu_atomics = false;
};

/// What keeps a grant valid on the server; revoked on destruction.
class GrantHandle {
 public:
  virtual ~GrantHandle() = default;
  /// Revokes it now, once, and says how that went: after a failure the client may reach the memory
  /// for as long as its lanes are there. Blocks while a device is asked.
  /// Errors: kProvider (errno kept).
  virtual Status revoke() noexcept { return {}; }
};

struct Grant {
  std::unique_ptr<GrantHandle> handle;
  std::vector<WireExtent> extents;
  LaneKeys lane_keys{};               ///< no lanes: one key for all of them, in the extents
  std::vector<UniqueFd> descriptors;  ///< sent with the first page of extents
};

/// The server's side of one session's transport.
///
/// receive() and on_event() by the control thread; send() and grant() by any one thread at a time.
class ServerEndpoint {
 public:
  /// What the server's own processor has carried out for this client.
  struct Served {
    std::array<std::uint64_t, 4> operations{};  ///< by Opcode; zeroes are writes
    std::array<std::uint64_t, 2> bytes{};       ///< read, written
  };
  virtual ~ServerEndpoint() = default;
  [[nodiscard]] virtual TransportKind kind() const noexcept = 0;
  [[nodiscard]] virtual const std::string& peer() const noexcept = 0;
  [[nodiscard]] virtual const std::string& device() const noexcept = 0;
  [[nodiscard]] virtual int event_fd() const noexcept = 0;
  virtual Result<std::optional<ControlMessage>> receive() noexcept = 0;
  /// Waits for nobody. Errors: where there is no room, too: the client does not take what was sent.
  virtual Status send(ControlMessage message) noexcept = 0;
  /// Waits until send() has room, at most until `deadline`.
  virtual bool has_room(Deadline /*deadline*/) noexcept { return true; }
  /// Waits until what was sent has left, at most until `deadline`: before a shutdown that would
  /// take it back.
  virtual void flush(Deadline deadline) noexcept = 0;
  /// The client can use keys that differ from lane to lane: it gets such where they are what keeps
  /// clients apart here. Before anything is granted, and before any lane. Worker.
  virtual void allow_lane_keys() noexcept {}
  /// Whether it does get them. Worker.
  [[nodiscard]] virtual bool has_lane_keys() const noexcept { return false; }
  /// Makes the keys of lanes that `grant`, one of this session's, has none for yet; others stay.
  /// Nothing to do where there is one key for all. Blocks as grant() does, and for as long as the
  /// device takes, 2 s at most and a millisecond for each key; worker. Errors: those of grant();
  /// kConnectionLost: a lane is about to go, by which the session is interrupted; kTimedOut.
  virtual Status renew(Grant& grant) noexcept {
    (void)grant;
    return {};
  }
  /// From now on a lane that shows this ticket belongs to this session.
  virtual void expect_lanes(const LaneTicket& ticket) noexcept = 0;
  /// Blocks while memory is registered: worker threads only.
  /// Errors: kOutOfMemory (see Reason::kMemlock), kLimitExceeded (limits.registrations_max,
  /// limits.windows_max, or the device's own), kUnsupported, kProvider; those of renew().
  virtual Result<Grant> grant(const GrantRequest& request) noexcept = 0;
  /// Notices that have come in over the lanes, at most as many as there is room for; event_fd() is
  /// readable when there may be some. What is not taken holds its client up. Control thread.
  virtual std::size_t take_notices(std::span<Notice> /*notices*/) noexcept { return 0; }
  /// Nothing where the server takes no part in operations. Any thread.
  [[nodiscard]] virtual std::optional<Served> served() const noexcept { return std::nullopt; }
  /// Ends the lanes, then the channel. Idempotent: on return of any call no lane serves any more.
  virtual void shutdown() noexcept = 0;
  /// Has destroyed what shutdown() has left of the lanes, which may take a device seconds. Does not
  /// wait for that. Idempotent; worker.
  virtual void destroy_lanes() noexcept {}
  /// Blocks until it is: nothing is left of the lanes that destroy_lanes() was for. Worker.
  virtual void await_destroyed() noexcept {}
  /// The client's process is no more: nothing of what it had mapped is reached by it. False where
  /// nobody can know. Any thread.
  [[nodiscard]] virtual bool peer_has_exited() const noexcept { return false; }
  /// What `before` has granted holds for the lanes of this one, which has none yet: the session
  /// goes on here. `before` has been shut down and buried, and grants nothing more. Errors:
  /// kUnsupported: of another transport or device.
  virtual Status take_over(ServerEndpoint& before) noexcept = 0;
};

/// What keeps the clients of one server apart on an RDMA device: for logs and status.
struct DeviceProtection {
  struct Check {
    std::string name;
    std::string verdict;  ///< "kept", "broken", "untested"
    std::string reason;
  };
  std::string device{};
  std::string mechanism{};      ///< "registrations", "windows"
  std::string reason{};         ///< why that one
  std::vector<Check> checks{};  ///< of the device's windows; empty: not asked
};

/// Accepts sessions over one transport. Used by the control thread only.
class Listener {
 public:
  virtual ~Listener() = default;
  [[nodiscard]] virtual TransportKind kind() const noexcept = 0;
  [[nodiscard]] virtual int event_fd() const noexcept = 0;
  /// Sessions that arrived since the last call. Never blocks. A session that misbehaves while it
  /// arrives is dropped and logged; errors are those of the listener itself.
  virtual Result<std::vector<std::unique_ptr<ServerEndpoint>>> accept() noexcept = 0;
  /// The memory that ordinary regions are of, before anybody is accepted. `hold` keeps it, for as
  /// long as anything here or of a session knows it. True: it is registered as it is, so its pages
  /// may not be exchanged for others from here on. Blocks while memory is pinned, and ends between
  /// two pieces at `stop`. Errors: kOutOfMemory (see Reason::kMemlock), kLimitExceeded
  /// (limits.registrations_max), kProvider; where there is a choice, something else is chosen
  /// instead; kCancelled (`stop`).
  virtual Result<bool> acquire_lease(std::span<const MemoryStretch> pieces,
                                     std::shared_ptr<void> hold, const std::stop_token& stop) {
    (void)pieces, (void)hold, (void)stop;
    return false;
  }
  /// One line for logs: "shm /run/user/0/remora-7471.sock".
  [[nodiscard]] virtual std::string description() const = 0;
  [[nodiscard]] virtual std::uint16_t port() const noexcept = 0;
  /// Server devices whose atomics it can offer: names for atomic domains. Empty for shm and tcp.
  [[nodiscard]] virtual std::vector<std::string> devices() const = 0;
  /// Of each of devices(); after acquire_lease() it does not change.
  [[nodiscard]] virtual std::vector<DeviceProtection> protection() const { return {}; }
};

/// Where a server listens: `listen.address` as it is configured, and what it stands for.
struct ListenAddress {
  std::string text = "127.0.0.1";
  /// Addresses of this machine, whose ports do not matter; one at least.
  std::vector<verbs::Address> addresses{verbs::Address::parse("127.0.0.1", 0).value()};
};

/// `port` 0 takes a free one. Clients are told that the server listens at `address`. The folder of
/// the socket is made only where none is named by the environment; one that others could replace
/// files in is refused. Errors: kAddressInUse; kAlreadyExists (a file of the socket's name, which
/// is no socket); kNotFound (no such folder); kPermissionDenied (the folder is another user's, or
/// every user may write to it); kSystem.
Result<std::unique_ptr<Listener>> listen_shm(std::uint16_t port, const ListenAddress& address = {});
/// On the first of `address` that a device has. `listen.port` 0 takes a free one. Counts its
/// registrations in `registry`. Errors: kAddressInUse; kNotFound (no device, not the named one, or
/// none that has the address: the subject says which).
Result<std::unique_ptr<Listener>> listen_rdma(const config::ServerConfig& config,
                                              const ListenAddress& address,
                                              const std::shared_ptr<metrics::Registry>& registry);
/// On every address of `address`. `port` 0 takes a free one. Data is served by a thread of the
/// listener's own, which counts in `registry`. Errors: kAddressInUse, kUnreachable (no address of
/// this host), kPermissionDenied (a port below 1024), kUnsupported (no such sockets here), kSystem.
Result<std::unique_ptr<Listener>> listen_tcp(const config::ServerConfig& config,
                                             const ListenAddress& address, std::uint16_t port,
                                             const std::shared_ptr<metrics::Registry>& registry);

}  // namespace remora::transport
