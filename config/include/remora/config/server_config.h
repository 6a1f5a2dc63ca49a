#pragma once

/// Everything a memory server can be told, as plain structs.
///
/// `load_server()` (load.h) fills and checks one from YAML; an embedding application may fill it by
/// hand, and `validate()` then applies the same checks. Every field has a default that works on a
/// loopback address but `Pool::size_bytes`, which the application has to choose. The key
/// table in config/docs/keys.md, printed by `reference_markdown()` (describe.h), lists each key
/// with unit, range and default.
///
/// Made for designated initialisers: every field has an initialiser, so leaving one out is silent.
/// Ownership: values, nothing borrowed. Thread safety: as any value.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <remora/config/diagnostics.h>
#include <remora/config/rdma_settings.h>
#include <remora/config/secret_key.h>
#include <remora/result.h>

namespace remora::config {

/// The pool is handed out in whole pages of this size: a region of 64 B takes 4 KiB of it.
inline constexpr std::uint64_t kPoolPageBytes = 4096;
/// Page size that `HugePages::kTry` and `kRequire` ask for.
inline constexpr std::uint64_t kHugePageBytes = 2U << 20U;
/// Page size that `HugePages::kRequire1GiB` asks for.
inline constexpr std::uint64_t kGibPageBytes = 1U << 30U;
/// Longest region name, in bytes.
inline constexpr std::size_t kRegionNameBytesMax = 64;
/// Most pieces a pool may be cut into.
inline constexpr std::uint64_t kPoolPiecesMax = 65536;

/// An address and a port to listen on or connect to.
struct Endpoint {
  std::string address{};  ///< host name, IPv4 or IPv6 literal (without brackets)
  std::uint16_t port = 0;

  friend bool operator==(const Endpoint&, const Endpoint&) = default;
};

/// Where clients connect.
struct Listen {
  /// An IPv4 or IPv6 literal, or a host name; `0.0.0.0` and `::` mean every address.
  std::string address = "127.0.0.1";
  std::uint16_t port = 7471;  ///< 0: a free one

  friend bool operator==(const Listen&, const Listen&) = default;
};

/// How much a transport is wanted.
enum class Availability : std::uint8_t {
  kOff,       ///< never
  kAuto,      ///< where the machine has it; a log line says when it has not
  kRequired,  ///< the server does not start without it
};

/// The mechanism that keeps the clients of a server apart over rdma.
enum class RdmaProtection : std::uint8_t {
  kAuto,           ///< windows where the device keeps clients apart by them, else registrations
  kRegistrations,  ///< a registration for each grant, in a protection domain for each session
  kWindows,        ///< memory windows; no start where the device does not keep clients apart
  /// For tests alone: windows whatever the device says. Clients may reach what is another's.
  kWindowsUnchecked,
};

/// Which data paths the server offers.
struct Transports {
  Availability rdma = Availability::kAuto;
  /// Names of the only RDMA devices to use, such as `mlx5_0`; empty: the one that has
  /// `listen.address`, or all of the machine where that means every address.
  std::vector<std::string> rdma_devices{};
  RdmaProtection rdma_protection = RdmaProtection::kAuto;
  /// Shared memory with clients of the same user, or root. Regions allow it one by one
  /// (`RegionConfig::shm`), so no memory is mapped by others until one does.
  Availability shm = Availability::kAuto;
  /// TCP on `listen.address` and `listen.port`, for machines without RDMA.
  Availability tcp = Availability::kAuto;
  /// Threads that serve tcp; 0: a quarter of the processors, 1 to 8. A session stays on one.
  std::uint32_t tcp_threads = 0;
  /// How long a thread that serves tcp looks for requests before it sleeps. Longer: the first
  /// request after a pause finds it awake, at the price of a core for that long.
  std::chrono::nanoseconds tcp_spin = std::chrono::microseconds{50};

  friend bool operator==(const Transports&, const Transports&) = default;
};

/// Whether the pool is made of 2 MiB or 1 GiB pages.
enum class HugePages : std::uint8_t {
  kNever,
  kTry,          ///< ordinary pages where there are no huge ones left; a log line says so
  kRequire,      ///< the server does not start without pages of 2 MiB
  kRequire1GiB,  ///< the server does not start without pages of 1 GiB
};

/// The memory that clients use.
struct Pool {
  /// Budget of all regions together. 0, the default, is refused: say how much.
  std::uint64_t size_bytes = 0;
  /// Longest stretch that is registered at once; an extent never crosses from one to the next.
  std::uint64_t piece_bytes = 1ULL << 30U;
  HugePages huge_pages = HugePages::kTry;
  /// Touch every page at start, so that a machine without the memory fails then and not later.
  bool populate = true;
  /// Core dumps of the server contain the pool: what clients have stored, readable.
  bool core_dump = false;
  /// The memory outlives the process: the next one takes it over, from a store of descriptors that
  /// Server::start() gets.
  bool warm_restart = false;

  friend bool operator==(const Pool&, const Pool&) = default;
};

/// The rights of clients on a region.
struct RegionRights {
  bool read = true;
  bool write = true;
  bool atomic = true;  ///< compare-and-swap and fetch-and-add

  friend bool operator==(const RegionRights&, const RegionRights&) = default;
};

/// Stands for every client in an access list.
inline constexpr std::string_view kAnyClient = "*";
/// Most entries of an access list.
inline constexpr std::size_t kAccessMax = 128;

/// The rights of one client on a region.
struct RegionAccess {
  std::string client{};  ///< a name, or kAnyClient
  bool read = false;
  bool write = false;
  bool atomic = false;
  bool admin = false;  ///< may remove it

  friend bool operator==(const RegionAccess&, const RegionAccess&) = default;
};

/// A region that exists from the start.
struct RegionConfig {
  std::string name{};  ///< see is_region_name()
  /// A multiple of `block_bytes`, at least one block.
  std::uint64_t size_bytes = 0;
  /// A power of two from 64 B to 16 MiB.
  std::uint64_t block_bytes = 4096;
  RegionRights rights{};
  /// Atomic domain: `auto` (`cpu` for a region with `shm`, else the RDMA device if there is one,
  /// else `cpu`), `none`, `cpu`, or the name of an RDMA device.
  std::string atomics = "auto";
  /// Clients of the same user, or root, on this host may map it. What they map cannot be taken
  /// back.
  bool shm = false;
  /// The rights of each client, where clients prove their names; no client has a right that is
  /// missing in `rights`. Empty: every client may use it within `rights`.
  std::vector<RegionAccess> access{};

  friend bool operator==(const RegionConfig&, const RegionConfig&) = default;
};

/// How clients prove their names.
enum class Auth : std::uint8_t {
  kNone,  ///< every client that can connect is let in
  kKeys,  ///< by a key that the server knows too; the server proves itself by the same key
};

/// A client that the server knows. Any number of processes may use its name and key.
struct ClientConfig {
  std::string name{};              ///< see is_client_name()
  std::optional<SecretKey> key{};  ///< required
  /// Accepted too, while processes change from one to the other.
  std::optional<SecretKey> previous_key{};
  /// Where load_server() has read the keys from; no other function reads these files.
  std::string key_file{};
  std::string previous_key_file{};
  bool create = false;  ///< may create regions
  bool admin = false;   ///< may use and remove every region
  /// Most bytes of the regions that it has created, in whole pages of the pool. 0: no bound but the
  /// pool's.
  std::uint64_t quota_bytes = 0;

  friend bool operator==(const ClientConfig&, const ClientConfig&) = default;
};

/// Bounds on what clients can make the server do.
struct Limits {
  std::uint32_t sessions_max = 1024;         ///< clients connected at once
  std::uint32_t regions_max = 4096;          ///< regions that exist at once
  std::uint32_t session_regions_max = 1024;  ///< regions one session has open at once
  /// Bytes of the regions one session has open at once, one that is open twice counted twice: what
  /// it has pinned, where each session registers what it opens. 0: only their number is bounded.
  std::uint64_t session_memory_bytes = 0;
  /// A connection that has not said a valid hello by then is closed.
  std::chrono::nanoseconds handshake_timeout = std::chrono::seconds{5};
  /// A control request (create, open, remove) that takes longer is answered kTimedOut.
  std::chrono::nanoseconds request_timeout = std::chrono::seconds{30};
  /// A session whose client has said nothing for so long loses its lanes, but for those over shm,
  /// whose memory stays mapped. Clients say something every quarter of it; a server that was itself
  /// stopped begins to count anew.
  std::chrono::nanoseconds session_lease = std::chrono::seconds{10};
  /// A session that has lost its client keeps what it has open for so long, for the client to come
  /// back to. 0: it ends at once.
  std::chrono::nanoseconds session_keep = std::chrono::seconds{10};
  /// After a request to stop, of which each session is told first, sessions get this long to end by
  /// themselves. 0: they end at once. Less than the 10 s after which container engines kill.
  std::chrono::nanoseconds drain_timeout = std::chrono::seconds{5};
  /// Connections that have not said a valid hello; one more takes the place of the oldest.
  std::uint32_t pending_handshakes_max = 256;
  /// Control requests of one session, over a long time; twice as many may come at once. A client
  /// that asks more often is slowed down: its requests wait.
  std::uint32_t requests_per_second = 1000;
  /// A session that loses a lane or its connection comes back so often in a minute. One that does
  /// more often loses what it has open: a client is refused by the NIC, which does not say so, and
  /// each refusal breaks a lane.
  std::uint32_t resumes_per_minute = 3000;
  /// A client whose grant is taken back gets this long to stop using it; then it goes anyway.
  std::chrono::nanoseconds revoke_grace = std::chrono::seconds{1};
  /// Registrations of memory with RDMA devices at once: one for each extent of a region that is
  /// open, which sessions that prove one key share, one for each lane and one for each control
  /// channel. 0: what the device can do.
  std::uint32_t registrations_max = 0;
  /// Memory windows of RDMA devices at once, where those keep clients apart: for each extent of a
  /// region that is open, one for each lane of the session. 0: what the device can do.
  std::uint32_t windows_max = 0;
  /// Bytes of regions that grants have registered with RDMA devices at once, over all sessions:
  /// what the server has pinned for them, beside the pool where grants are windows. 0: no bound.
  std::uint64_t registered_bytes_max = 0;

  friend bool operator==(const Limits&, const Limits&) = default;
};

/// Lines less severe than this are not written.
enum class LogLevel : std::uint8_t { kTrace, kDebug, kInfo, kWarn, kError, kOff };

/// The form of a line of the log.
enum class LogFormat : std::uint8_t {
  kText,  ///< time, level and text
  kJson   ///< an object with `time`, `level`, `event`, `text` and the fields of the event
};

struct Log {
  LogLevel level = LogLevel::kInfo;
  LogFormat format = LogFormat::kText;

  friend bool operator==(const Log&, const Log&) = default;
};

struct Metrics {
  /// `HOST:PORT` or `[IPv6]:PORT` (see parse_endpoint()) of the HTTP endpoint; empty: none.
  std::optional<std::string> address{};
  /// The credential of readers; see metrics::HttpAccess. Empty: not asked for.
  std::string token{};
  std::string user{};
  std::string password{};
  /// Where load_server() has read `token` and `password` from; no other function reads
  /// these files.
  std::string token_file{};
  std::string password_file{};
  /// Names besides addresses, `localhost` and the machine's own by which it may be asked: see
  /// metrics::HttpOptions::allowed_hosts. "*": any.
  std::vector<std::string> allowed_hosts{};

  friend bool operator==(const Metrics&, const Metrics&) = default;
};

/// Where a value was written.
struct Origin {
  std::string file{};
  std::size_t line = 0;       ///< from 1
  std::string environment{};  ///< variables the value was made from: `A, B`; empty: none

  friend bool operator==(const Origin&, const Origin&) = default;
};
/// By key path (`pool.size`, `regions[0].name`); what is not in it was not written in a file.
using Origins = std::map<std::string, Origin, std::less<>>;

/// One memory server.
struct ServerConfig {
  Listen listen{};
  Transports transports{};
  RdmaSettings rdma{};
  Pool pool{};
  std::vector<RegionConfig> regions{};
  /// Empty: not said, which is accepted on a loopback address only. On a network, a server
  /// that lets in every client has to say so with `auth: none`.
  std::optional<Auth> auth{};
  /// With Auth::kKeys, at least one.
  std::vector<ClientConfig> clients{};
  Limits limits{};
  Log log{};
  Metrics metrics{};
  /// Filled by load_server() for show(); nothing else reads it.
  Origins origins{};
};

/// Checks a configuration filled by hand: every range of the key table and every rule between keys.
/// Empty when nothing is wrong. What needs the machine (devices, free memory, an address in use) is
/// checked when a server starts.
Diagnostics validate(const ServerConfig& config);

/// 1 to 64 of `A-Z a-z 0-9 . _ -`, but not `.` or `..`: safe in URIs, paths, logs and labels.
[[nodiscard]] bool is_region_name(std::string_view name) noexcept;

/// True for 127.0.0.0/8, `::1` and `localhost`.
[[nodiscard]] bool is_loopback(std::string_view address) noexcept;

/// `HOST:PORT` or `[IPv6]:PORT`, port 1 to 65535.
/// Errors: kInvalidArgument, with the text as subject.
Result<Endpoint> parse_endpoint(std::string_view text);

[[nodiscard]] std::string_view to_string(Availability availability) noexcept;
[[nodiscard]] std::string_view to_string(RdmaProtection protection) noexcept;
[[nodiscard]] std::string_view to_string(HugePages huge_pages) noexcept;
[[nodiscard]] std::string_view to_string(Auth auth) noexcept;
[[nodiscard]] std::string_view to_string(LogLevel level) noexcept;
[[nodiscard]] std::string_view to_string(LogFormat format) noexcept;

}  // namespace remora::config
