#pragma once

/// The configuration of a memory server, as plain structs.
///
/// `load_server()` (load.h) fills and checks one from YAML; an embedding application may fill it by
/// hand, and `validate()` then applies the same checks. Every field except `Pool::size_bytes`,
/// which the application must choose, has a default that works on a loopback address. The key table
/// in config/docs/keys.md, printed by `reference_markdown()` (describe.h), lists each key with
/// unit, range and default.
///
/// Made for designated initialisers: every field has an initialiser, so a field that is left out
/// gives no warning. Ownership: values, nothing borrowed. Thread safety: as any value.

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

/// The page size in which the pool allocates: a region of 64 B uses 4 KiB of it.
inline constexpr std::uint64_t kPoolPageBytes = 4096;
/// The page size of `HugePages::kTry` and `kRequire`.
inline constexpr std::uint64_t kHugePageBytes = 2U << 20U;
/// The page size of `HugePages::kRequire1GiB`.
inline constexpr std::uint64_t kGibPageBytes = 1U << 30U;
/// The longest region name, in bytes.
inline constexpr std::size_t kRegionNameBytesMax = 64;
/// The most pieces of a pool.
inline constexpr std::uint64_t kPoolPiecesMax = 65536;

/// An address and a port to listen on or connect to.
struct Endpoint {
  std::string address{};  ///< host name, IPv4 or IPv6 literal (without brackets)
  std::uint16_t port = 0;

  friend bool operator==(const Endpoint&, const Endpoint&) = default;
};

/// The address to which clients connect.
struct Listen {
  /// An IPv4 or IPv6 literal, or a host name; `0.0.0.0` and `::` mean every address.
  std::string address = "127.0.0.1";
  std::uint16_t port = 7471;  ///< 0: a free port

  friend bool operator==(const Listen&, const Listen&) = default;
};

/// Whether the server offers a transport.
enum class Availability : std::uint8_t {
  kOff,       ///< never
  kAuto,      ///< if the machine has it; the log says if it has not
  kRequired,  ///< the server does not start without it
};

/// The mechanism that isolates the clients of a server from each other over rdma.
enum class RdmaProtection : std::uint8_t {
  kAuto,           ///< windows if they isolate clients on the device, else registrations
  kRegistrations,  ///< a registration for each grant, in a protection domain for each session
  kWindows,        ///< memory windows; no start if they do not isolate clients
  /// For tests only: windows without the check. Clients may reach memory of other clients.
  kWindowsUnchecked,
};

/// The data paths that the server offers.
struct Transports {
  Availability rdma = Availability::kAuto;
  /// Names of the only RDMA devices to use, such as `mlx5_0`; empty: the device that has
  /// `listen.address`, or all devices if that means every address.
  std::vector<std::string> rdma_devices{};
  RdmaProtection rdma_protection = RdmaProtection::kAuto;
  /// Shared memory with clients of the same user, or root. Each region must allow it
  /// (`RegionConfig::shm`), so other processes map no memory of other regions.
  Availability shm = Availability::kAuto;
  /// TCP on `listen.address` and `listen.port`, for machines without RDMA.
  Availability tcp = Availability::kAuto;
  /// Threads that serve tcp; 0: a quarter of the processors, 1 to 8. A session stays on one thread.
  std::uint32_t tcp_threads = 0;
  /// How long a thread that serves tcp polls for requests before it sleeps. With a longer time the
  /// thread is awake for the first request after a pause, but uses a core for that time.
  std::chrono::nanoseconds tcp_spin = std::chrono::microseconds{50};

  friend bool operator==(const Transports&, const Transports&) = default;
};

/// The page size of the pool's memory.
enum class HugePages : std::uint8_t {
  kNever,
  kTry,          ///< ordinary pages if no huge ones are left; the log says so
  kRequire,      ///< the server does not start without pages of 2 MiB
  kRequire1GiB,  ///< the server does not start without pages of 1 GiB
};

/// The memory that clients use.
struct Pool {
  /// The bytes of all regions together. 0, the default, is refused: a size must be given.
  std::uint64_t size_bytes = 0;
  /// The longest part that is registered at once; an extent never crosses from one to the next.
  std::uint64_t piece_bytes = 1ULL << 30U;
  HugePages huge_pages = HugePages::kTry;
  /// Touch every page at start, so that a lack of memory is an error at the start and not later.
  bool populate = true;
  /// Whether core dumps of the server contain the pool, with all bytes that clients have stored.
  bool core_dump = false;
  /// Whether the memory outlives the process: the next process takes it over, from a store of
  /// descriptors that Server::start() gets.
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
/// The most entries of an access list.
inline constexpr std::size_t kAccessMax = 128;

/// The rights of one client on a region.
struct RegionAccess {
  std::string client{};  ///< a name, or kAnyClient
  bool read = false;
  bool write = false;
  bool atomic = false;
  bool admin = false;  ///< may remove the region

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
  /// Whether clients of the same user, or root, on this host may map it. The server cannot undo a
  /// mapping.
  bool shm = false;
  /// The rights of each client, if clients prove their names; no client has a right that is missing
  /// in `rights`. Empty: every client may use it within `rights`.
  std::vector<RegionAccess> access{};

  friend bool operator==(const RegionConfig&, const RegionConfig&) = default;
};

/// How clients prove their names.
enum class Auth : std::uint8_t {
  kNone,  ///< every client that can connect is accepted
  kKeys,  ///< by a key that the server has, too; the server proves that it has it
};

/// A client that the server knows. Any number of processes may use its name and key.
struct ClientConfig {
  std::string name{};              ///< see is_client_name()
  std::optional<SecretKey> key{};  ///< required
  /// Also accepted, while processes change from one key to the other.
  std::optional<SecretKey> previous_key{};
  /// The files from which load_server() has read the keys; no other function reads these files.
  std::string key_file{};
  std::string previous_key_file{};
  bool create = false;  ///< may create regions
  bool admin = false;   ///< may use and remove every region
  /// The most bytes of the regions that it has created, in whole pages of the pool. 0: limited only
  /// by the pool.
  std::uint64_t quota_bytes = 0;

  friend bool operator==(const ClientConfig&, const ClientConfig&) = default;
};

/// Limits on the use of the server by clients.
struct Limits {
  std::uint32_t sessions_max = 1024;         ///< clients connected at once
  std::uint32_t regions_max = 4096;          ///< regions that exist at once
  std::uint32_t session_regions_max = 1024;  ///< regions one session has open at once
  /// Bytes of the regions that one session has open at once; a region that is open twice counts
  /// twice. This is the memory that it has pinned, if each session registers the regions that it
  /// opens. 0: only their number is limited.
  std::uint64_t session_memory_bytes = 0;
  /// A connection that has not sent a valid hello within this time is closed.
  std::chrono::nanoseconds handshake_timeout = std::chrono::seconds{5};
  /// A control request (create, open, remove) that takes longer is answered kTimedOut.
  std::chrono::nanoseconds request_timeout = std::chrono::seconds{30};
  /// A session whose client has sent nothing for this time loses its lanes, except over shm, where
  /// memory stays mapped. Clients send a message every quarter of it; a server that was itself
  /// stopped restarts the time.
  std::chrono::nanoseconds session_lease = std::chrono::seconds{10};
  /// A session that has lost its client keeps its open regions for this time, so that the client
  /// can return. 0: it ends at once.
  std::chrono::nanoseconds session_keep = std::chrono::seconds{10};
  /// After a request to stop the server tells each session, and sessions have this time to end by
  /// themselves. 0: they end at once. The default is less than the 10 s after which container
  /// engines kill a process.
  std::chrono::nanoseconds drain_timeout = std::chrono::seconds{5};
  /// The most connections that have not sent a valid hello; a further one displaces the oldest.
  std::uint32_t pending_handshakes_max = 256;
  /// The rate of control requests of one session, over a long time; twice this number may come at
  /// once. The requests of a faster client wait.
  std::uint32_t requests_per_second = 1000;
  /// How often a session may resume in a minute after it has lost a lane or its connection. A
  /// session that resumes more often ends and loses its open regions: the NIC refuses requests of a
  /// client without telling the server, and each refusal breaks a lane.
  std::uint32_t resumes_per_minute = 3000;
  /// The time that a client has to stop using a grant that is revoked; then the server ends the
  /// grant.
  std::chrono::nanoseconds revoke_grace = std::chrono::seconds{1};
  /// The most registrations of memory with RDMA devices: one for each extent of an open region,
  /// shared by sessions that prove one key, one for each lane and one for each control channel. 0:
  /// the device's limit.
  std::uint32_t registrations_max = 0;
  /// The most memory windows of RDMA devices, if windows isolate clients: for each extent of an
  /// open region, one for each lane of the session. 0: the device's limit.
  std::uint32_t windows_max = 0;
  /// The most bytes of regions that grants have registered with RDMA devices, over all sessions:
  /// the memory that the server has pinned for them, beside the pool if grants are windows. 0: no
  /// limit.
  std::uint64_t registered_bytes_max = 0;

  friend bool operator==(const Limits&, const Limits&) = default;
};

/// Lines less severe than this are not written; kOff: no line is.
enum class LogLevel : std::uint8_t { kTrace, kDebug, kInfo, kWarn, kError, kOff };

/// The form of a line of the log.
enum class LogFormat : std::uint8_t {
  kText,  ///< time, level and text
  kJson   ///< an object with `time`, `level`, `event`, `text` and the fields of the event
};

/// The log of the server program. An embedded server uses the log of its application.
struct Log {
  LogLevel level = LogLevel::kInfo;
  LogFormat format = LogFormat::kText;

  friend bool operator==(const Log&, const Log&) = default;
};

/// The HTTP endpoint for metrics, health and status; see metrics::HttpEndpoint.
struct Metrics {
  /// `HOST:PORT` or `[IPv6]:PORT` (see parse_endpoint()) of the HTTP endpoint; empty: none.
  std::optional<std::string> address{};
  /// The credential of readers; see metrics::HttpAccess. Empty: readers need none.
  std::string token{};
  std::string user{};      ///< of HTTP Basic: both or none of `user` and `password`
  std::string password{};  ///< of HTTP Basic
  /// The files from which load_server() has read `token` and `password`; no other function reads
  /// these files.
  std::string token_file{};
  std::string password_file{};
  /// Names that requests may use, besides addresses, `localhost` and the machine's own: see
  /// metrics::HttpOptions::allowed_hosts. "*": any.
  std::vector<std::string> allowed_hosts{};

  friend bool operator==(const Metrics&, const Metrics&) = default;
};

/// The cluster in which a server registers itself. The engine does not read it: the program
/// remora-server does. A `server` that is empty: in none.
struct Cluster {
  std::string server{};  ///< see is_region_name(), as `name` and `failure_domain`
  std::string name{};
  std::vector<std::string> etcd{};  ///< "http://HOST:PORT" or "https://HOST:PORT"
  std::string file{};               ///< of one host, in place of etcd; absolute, ends in ".json"
  std::string failure_domain{};     ///< empty: the server alone
  /// `HOST:PORT`, where clients connect; empty: `listen.address` and its port.
  std::vector<std::string> advertise{};
  // Absolute paths, which the program reads when it connects to etcd.
  std::string tls_ca_file{};
  std::string tls_certificate_file{};
  std::string tls_key_file{};
  std::string user{};
  std::string password_file{};

  friend bool operator==(const Cluster&, const Cluster&) = default;
};

/// Where a value was written.
struct Origin {
  std::string file{};         ///< as it was given to load_server() or parse_server()
  std::size_t line = 0;       ///< from 1
  std::string environment{};  ///< the variables in the value: `A, B`; empty: none

  friend bool operator==(const Origin&, const Origin&) = default;
};
/// By key path (`pool.size`, `regions[0].name`); a path that is missing was not written in a file.
using Origins = std::map<std::string, Origin, std::less<>>;

/// One memory server.
struct ServerConfig {
  Listen listen{};
  Transports transports{};
  RdmaSettings rdma{};  ///< of this side of each connection over rdma
  Pool pool{};
  std::vector<RegionConfig> regions{};  ///< the server creates them before it accepts clients
  /// Empty: not set, which is accepted on a loopback address only. On a network, a server that
  /// accepts every client must be configured with `auth: none`.
  std::optional<Auth> auth{};
  /// With Auth::kKeys, at least one.
  std::vector<ClientConfig> clients{};
  Limits limits{};
  Log log{};
  Metrics metrics{};
  Cluster cluster{};
  /// Filled by load_server() for show(); nothing else reads it.
  Origins origins{};
};

/// Checks a configuration filled by hand: every range of the key table and every rule between keys.
/// Empty: no fault. A server checks the rest, which depends on the machine (devices, free memory,
/// an address in use), when it starts.
Diagnostics validate(const ServerConfig& config);

/// 1 to 64 of `A-Z a-z 0-9 . _ -`, but not `.` or `..`: safe in URIs, paths, logs and labels.
[[nodiscard]] bool is_region_name(std::string_view name) noexcept;

/// True for 127.0.0.0/8, `::1` and `localhost`.
[[nodiscard]] bool is_loopback(std::string_view address) noexcept;

/// `HOST:PORT` or `[IPv6]:PORT`, port 1 to 65535.
/// Errors: kInvalidArgument, with the text as subject.
Result<Endpoint> parse_endpoint(std::string_view text);

/// The word that the file has for each value: `off`, `windows`, `json`.
[[nodiscard]] std::string_view to_string(Availability availability) noexcept;
/// The word in the file, as in transports.rdma_protection.
[[nodiscard]] std::string_view to_string(RdmaProtection protection) noexcept;
/// The word in the file, as in pool.huge_pages.
[[nodiscard]] std::string_view to_string(HugePages huge_pages) noexcept;
/// The word in the file, as in auth.
[[nodiscard]] std::string_view to_string(Auth auth) noexcept;
/// The word in the file, as in log.level.
[[nodiscard]] std::string_view to_string(LogLevel level) noexcept;
/// The word in the file, as in log.format.
[[nodiscard]] std::string_view to_string(LogFormat format) noexcept;

}  // namespace remora::config
