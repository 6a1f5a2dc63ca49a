#include "keys.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string>
#include <utility>

#include "hosts.h"
#include "key_builders.h"
#include "key_checks.h"

namespace remora::config {
namespace {

using namespace key_builders;  // NOLINT(google-build-using-namespace): the words of the table
using namespace std::string_view_literals;  // NOLINT(google-build-using-namespace): literals only

// In the order of their enumerators.
constexpr std::array kAvailabilityWords{"off"sv, "auto"sv, "required"sv};
constexpr std::array kProtectionWords{"auto"sv, "registrations"sv, "windows"sv,
                                      "windows-unchecked"sv};
constexpr std::array kAnyDeviceWords{"auto"sv};
constexpr std::array kHugePagesWords{"never"sv, "try"sv, "require"sv, "1GiB"sv};
constexpr std::array kAuthWords{"none"sv, "keys"sv};
constexpr std::array kLogLevelWords{"trace"sv, "debug"sv, "info"sv, "warn"sv, "error"sv, "off"sv};
constexpr std::array kLogFormatWords{"text"sv, "json"sv};
constexpr std::array kMtuWords{"256"sv, "512"sv, "1024"sv, "2048"sv, "4096"sv};
constexpr std::array kRightWords{"read"sv, "write"sv, "atomic"sv};
constexpr std::array kAccessWords{"read"sv, "write"sv, "atomic"sv, "admin"sv};

constexpr Access kAuth{[](ServerConfig& c, At, const Value& v) {
                         c.auth = std::get<std::string>(v) == "keys" ? Auth::kKeys : Auth::kNone;
                       },
                       [](const ServerConfig& c, At) -> std::optional<Value> {
                         if (!c.auth) return std::nullopt;
                         return holding<std::string>(to_string(*c.auth));
                       }};

// The word for "no device named" is `auto`, in the struct it is the empty list.
constexpr Access kRdmaDevice{[](ServerConfig& c, At, const Value& v) {
                               auto names = std::get<std::vector<std::string>>(v);
                               if (names.size() == 1 && names[0] == kAnyDeviceWords[0])
                                 names.clear();
                               c.transports.rdma_devices = std::move(names);
                             },
                             [](const ServerConfig& c, At) -> std::optional<Value> {
                               std::vector<std::string> names = c.transports.rdma_devices;
                               if (names.empty()) names.emplace_back(kAnyDeviceWords[0]);
                               return holding<std::vector<std::string>>(std::move(names));
                             }};

constexpr Access kMetricsAddress{[](ServerConfig& c, At, const Value& v) {
                                   const auto& address = std::get<std::string>(v);
                                   c.metrics.address =
                                       address == "none" ? std::nullopt : std::optional{address};
                                 },
                                 [](const ServerConfig& c, At) -> std::optional<Value> {
                                   return holding<std::string>(c.metrics.address.value_or("none"));
                                 }};

constexpr Access kAllowedHosts{[](ServerConfig& c, At, const Value& v) {
                                 c.metrics.allowed_hosts = host_names(std::get<std::string>(v));
                               },
                               [](const ServerConfig& c, At) -> std::optional<Value> {
                                 if (c.metrics.allowed_hosts.empty()) return std::nullopt;
                                 std::string text;
                                 for (const std::string& name : c.metrics.allowed_hosts)
                                   text += (text.empty() ? "" : ", ") + name;
                                 return holding<std::string>(std::move(text));
                               }};

bool has_word(const std::vector<std::string>& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// The rights that a region and an entry of its `access` have in common.
template <typename Rights>
void set_rights(Rights& to, const std::vector<std::string>& words) {
  to.read = has_word(words, "read");
  to.write = has_word(words, "write");
  to.atomic = has_word(words, "atomic");
}

template <typename Rights>
std::vector<std::string> words_of(const Rights& rights) {
  std::vector<std::string> words;
  if (rights.read) words.emplace_back("read");
  if (rights.write) words.emplace_back("write");
  if (rights.atomic) words.emplace_back("atomic");
  return words;
}

constexpr Access kRights{[](ServerConfig& c, At r, const Value& v) {
                           set_rights(c.regions[r].rights, std::get<std::vector<std::string>>(v));
                         },
                         [](const ServerConfig& c, At r) -> std::optional<Value> {
                           return holding<std::vector<std::string>>(words_of(c.regions[r].rights));
                         }};

constexpr Access kAccessRights{[](ServerConfig& c, At at, const Value& v) {
                                 const auto& words = std::get<std::vector<std::string>>(v);
                                 RegionAccess& access = c.regions[at.item].access[at.inner];
                                 set_rights(access, words);
                                 access.admin = has_word(words, "admin");
                               },
                               [](const ServerConfig& c, At at) -> std::optional<Value> {
                                 const RegionAccess& access = c.regions[at.item].access[at.inner];
                                 std::vector<std::string> words = words_of(access);
                                 if (access.admin) words.emplace_back("admin");
                                 return holding<std::vector<std::string>>(std::move(words));
                               }};

// "mtu=1024" has a name that the text does not repeat.
std::optional<Value> text_of_one(const RdmaSettings& one) {
  const std::string text = to_string(one);
  if (text.empty()) return std::nullopt;
  return holding<std::string>(text.substr(text.find('=') + 1));
}

constexpr Access kPkey{
    [](ServerConfig& c, At, const Value& v) {
      (void)set_rdma_setting(c.rdma, "pkey", std::get<std::string>(v));
    },
    [](const ServerConfig& c, At) { return text_of_one({.pkey = c.rdma.pkey}); }};
constexpr Access kMtu{[](ServerConfig& c, At, const Value& v) {
                        (void)set_rdma_setting(c.rdma, "mtu", std::get<std::string>(v));
                      },
                      [](const ServerConfig& c, At) { return text_of_one({.mtu = c.rdma.mtu}); }};

/// "auto" is 0.
std::optional<std::uint32_t> thread_count(std::string_view value) {
  constexpr std::uint32_t kMaxThreads = 64;
  if (value == "auto") return 0;
  std::uint32_t count = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), count);
  if (error != std::errc{} || end != value.data() + value.size()) return {};
  if (count == 0 || count > kMaxThreads) return {};
  return count;
}
bool is_thread_count(std::string_view value) { return thread_count(value).has_value(); }

constexpr auto kMetricsToken =
    optional_text([](auto& c, std::size_t) -> auto& { return c.metrics.token; });
constexpr auto kMetricsTokenFile =
    optional_text([](auto& c, std::size_t) -> auto& { return c.metrics.token_file; });
constexpr auto kMetricsUser =
    optional_text([](auto& c, std::size_t) -> auto& { return c.metrics.user; });
constexpr auto kMetricsPassword =
    optional_text([](auto& c, std::size_t) -> auto& { return c.metrics.password; });
constexpr auto kMetricsPasswordFile =
    optional_text([](auto& c, std::size_t) -> auto& { return c.metrics.password_file; });
constexpr auto kListenAddress =
    text([](auto& c, std::size_t) -> auto& { return c.listen.address; });
constexpr auto kListenPort = number([](auto& c, std::size_t) -> auto& { return c.listen.port; });
constexpr auto kRdmaProtection = choice<RdmaProtection>(
    [](auto& c, std::size_t) -> auto& { return c.transports.rdma_protection; });
constexpr auto kRdma =
    choice<Availability>([](auto& c, std::size_t) -> auto& { return c.transports.rdma; });
constexpr auto kShm =
    choice<Availability>([](auto& c, std::size_t) -> auto& { return c.transports.shm; });
constexpr auto kTcp =
    choice<Availability>([](auto& c, std::size_t) -> auto& { return c.transports.tcp; });
constexpr Access kTcpThreads{
    [](ServerConfig& c, At, const Value& v) {
      c.transports.tcp_threads = thread_count(std::get<std::string>(v)).value_or(0);
    },
    [](const ServerConfig& c, At) -> std::optional<Value> {
      const std::uint32_t count = c.transports.tcp_threads;
      return holding<std::string>(count == 0 ? "auto" : std::to_string(count));
    }};
constexpr auto kTcpSpin =
    duration([](auto& c, std::size_t) -> auto& { return c.transports.tcp_spin; });
constexpr auto kTrafficClass =
    settable_number([](auto& c, std::size_t) -> auto& { return c.rdma.traffic_class; });
constexpr auto kServiceLevel =
    settable_number([](auto& c, std::size_t) -> auto& { return c.rdma.service_level; });
constexpr auto kGidIndex =
    settable_number([](auto& c, std::size_t) -> auto& { return c.rdma.gid_index; });
constexpr auto kAckTimeout =
    settable_number([](auto& c, std::size_t) -> auto& { return c.rdma.timeout; });
constexpr auto kRetryCount =
    settable_number([](auto& c, std::size_t) -> auto& { return c.rdma.retry_count; });
constexpr auto kRnrRetry =
    settable_number([](auto& c, std::size_t) -> auto& { return c.rdma.rnr_retry; });
constexpr auto kPoolSize = number([](auto& c, std::size_t) -> auto& { return c.pool.size_bytes; });
constexpr auto kPoolPiece =
    number([](auto& c, std::size_t) -> auto& { return c.pool.piece_bytes; });
constexpr auto kPoolHugePages =
    choice<HugePages>([](auto& c, std::size_t) -> auto& { return c.pool.huge_pages; });
constexpr auto kPoolPopulate =
    boolean([](auto& c, std::size_t) -> auto& { return c.pool.populate; });
constexpr auto kPoolCoreDump =
    boolean([](auto& c, std::size_t) -> auto& { return c.pool.core_dump; });
constexpr auto kPoolWarmRestart =
    boolean([](auto& c, std::size_t) -> auto& { return c.pool.warm_restart; });
constexpr auto kRegionName =
    text([](auto& c, std::size_t r) -> auto& { return c.regions[r].name; });
constexpr auto kRegionSize =
    number([](auto& c, std::size_t r) -> auto& { return c.regions[r].size_bytes; });
constexpr auto kRegionBlock =
    number([](auto& c, std::size_t r) -> auto& { return c.regions[r].block_bytes; });
constexpr auto kRegionAtomics =
    text([](auto& c, std::size_t r) -> auto& { return c.regions[r].atomics; });
constexpr auto kRegionShm =
    boolean([](auto& c, std::size_t r) -> auto& { return c.regions[r].shm; });
constexpr auto kRegionList = [](auto& c, At) -> auto& { return c.regions; };
constexpr auto kAccessList = [](auto& c, At at) -> auto& { return c.regions[at.item].access; };
constexpr auto kAccessClient =
    text([](auto& c, At at) -> auto& { return c.regions[at.item].access[at.inner].client; });
constexpr auto kClientList = [](auto& c, At) -> auto& { return c.clients; };
constexpr auto kClientName =
    text([](auto& c, std::size_t i) -> auto& { return c.clients[i].name; });
constexpr auto kClientKey =
    secret_key([](auto& c, std::size_t i) -> auto& { return c.clients[i].key; });
constexpr auto kClientKeyFile =
    optional_text([](auto& c, std::size_t i) -> auto& { return c.clients[i].key_file; });
constexpr auto kClientPreviousKey =
    secret_key([](auto& c, std::size_t i) -> auto& { return c.clients[i].previous_key; });
constexpr auto kClientPreviousKeyFile =
    optional_text([](auto& c, std::size_t i) -> auto& { return c.clients[i].previous_key_file; });
constexpr auto kClientCreate =
    boolean([](auto& c, std::size_t i) -> auto& { return c.clients[i].create; });
constexpr auto kClientAdmin =
    boolean([](auto& c, std::size_t i) -> auto& { return c.clients[i].admin; });
constexpr auto kClientQuota =
    optional_number([](auto& c, std::size_t i) -> auto& { return c.clients[i].quota_bytes; });
constexpr auto kMaxPendingHandshakes =
    number([](auto& c, std::size_t) -> auto& { return c.limits.pending_handshakes_max; });
constexpr auto kResumesPerMinute =
    number([](auto& c, std::size_t) -> auto& { return c.limits.resumes_per_minute; });
constexpr auto kRequestsPerSecond =
    number([](auto& c, std::size_t) -> auto& { return c.limits.requests_per_second; });
constexpr auto kSessionsMax =
    number([](auto& c, std::size_t) -> auto& { return c.limits.sessions_max; });
constexpr auto kRegionsMax =
    number([](auto& c, std::size_t) -> auto& { return c.limits.regions_max; });
constexpr auto kSessionRegionsMax =
    number([](auto& c, std::size_t) -> auto& { return c.limits.session_regions_max; });
constexpr auto kSessionMemory =
    optional_number([](auto& c, std::size_t) -> auto& { return c.limits.session_memory_bytes; });
constexpr auto kHandshakeTimeout =
    duration([](auto& c, std::size_t) -> auto& { return c.limits.handshake_timeout; });
constexpr auto kRequestTimeout =
    duration([](auto& c, std::size_t) -> auto& { return c.limits.request_timeout; });
constexpr auto kSessionLease =
    duration([](auto& c, std::size_t) -> auto& { return c.limits.session_lease; });
constexpr auto kSessionKeep =
    duration([](auto& c, std::size_t) -> auto& { return c.limits.session_keep; });
constexpr auto kDrainTimeout =
    duration([](auto& c, std::size_t) -> auto& { return c.limits.drain_timeout; });
constexpr auto kRevokeGrace =
    duration([](auto& c, std::size_t) -> auto& { return c.limits.revoke_grace; });
constexpr auto kRegistrationsMax =
    number([](auto& c, std::size_t) -> auto& { return c.limits.registrations_max; });
constexpr auto kWindowsMax =
    number([](auto& c, std::size_t) -> auto& { return c.limits.windows_max; });
constexpr auto kRegisteredBytesMax =
    optional_number([](auto& c, std::size_t) -> auto& { return c.limits.registered_bytes_max; });
constexpr auto kLogLevel =
    choice<LogLevel>([](auto& c, std::size_t) -> auto& { return c.log.level; });
constexpr auto kLogFormat =
    choice<LogFormat>([](auto& c, std::size_t) -> auto& { return c.log.format; });

constexpr std::array kKeys{
    group("listen", KeyType::kMap, "Where clients connect."),
    free_text("listen.address", "an IPv4 or IPv6 address or a host name", is_host, kListenAddress,
              "`0.0.0.0` and `::` mean every address. The server does not start with an address "
              "that is not the machine's, or a name that does not resolve. An address other than a "
              "loopback one needs `auth`."),
    ranged("listen.port", KeyType::kNumber, 0, 65535, kListenPort,
           "Port of TCP and of the RDMA connection manager; the path of the shared-memory socket "
           "derives from it. 0 takes a free port."),

    group("transports", KeyType::kMap, "The data paths that the server offers; at least one."),
    worded("transports.rdma", KeyType::kChoice, kAvailabilityWords, kRdma,
           "`auto`: offered where a device is found; `required`: the server does not start without "
           "a device."),
    names("transports.rdma_device", "`auto`, the name of an RDMA device, or a list of names",
          is_device_name, kAnyDeviceWords, 64, kRdmaDevice,
          "The only devices to use, such as `mlx5_0`; `auto`: the device that has "
          "`listen.address`, or all devices where that means every address. Devices that cannot "
          "serve are left out; the log and `/status` say why."),
    worded("transports.rdma_protection", KeyType::kChoice, kProtectionWords, kRdmaProtection,
           "How clients are kept apart over rdma: by registrations or by memory windows. `auto`: "
           "`windows` where a test of the device at start succeeds, else `registrations`; the log "
           "and `/status` say which. `windows-unchecked` is for tests only."),
    worded("transports.shm", KeyType::kChoice, kAvailabilityWords, kShm,
           "Shared memory with clients of the same user, or root, on this host; a region must "
           "allow it too."),
    worded("transports.tcp", KeyType::kChoice, kAvailabilityWords, kTcp,
           "TCP on `listen.address` and `listen.port`, for machines without RDMA; threads of the "
           "server copy. With `auto`, too, the server does not start if the port is in use."),
    free_text("transports.tcp_threads", "`auto`, or 1 to 64", is_thread_count, kTcpThreads,
              "How many threads copy. A session stays on one of them. `auto`: a quarter of the "
              "processors, 1 to 8, and fewer where the system gives no more threads."),
    ranged("transports.tcp_spin", KeyType::kDuration, 0, kSecond, kTcpSpin,
           "How long each of these threads looks for requests before it sleeps. While it looks, a "
           "request is "
           "served tens of microseconds sooner; the price is the time of a core, so long after "
           "each request."),

    group("rdma", KeyType::kMap,
          "How connections over rdma use the fabric. What is not set is the choice of the RDMA "
          "connection manager, and so of the host."),
    ranged("rdma.traffic_class", KeyType::kNumber, 0, 255, kTrafficClass,
           "Traffic class of what the server sends: DSCP in the upper six bits, ECN in the lower "
           "two. Not set: the client's, or the host's `default_roce_tos`."),
    ranged("rdma.service_level", KeyType::kNumber, 0, 15, kServiceLevel,
           "InfiniBand service level; on RoCE the priority, 0 to 7. Not set: what the host derives "
           "from the traffic class."),
    free_text("rdma.pkey", "1 to 0xffff, such as `0x8001`", is_pkey, kPkey,
              "Partition key, which the port of the device must have. Not set: that of the "
              "interface."),
    ranged("rdma.gid_index", KeyType::kNumber, 0, 255, kGidIndex,
           "Row of the port's GID table to send from. Not set: that of the address that the client "
           "has connected to."),
    worded("rdma.mtu", KeyType::kChoice, kMtuWords, kMtu,
           "Bytes of payload in a packet at most. Lanes of clients that would send more are "
           "refused: they need `mtu=` in the URI, or `EngineOptions::rdma`. Not set: the client's, "
           "or what the port can carry."),
    ranged("rdma.timeout", KeyType::kNumber, 1, 31, kAckTimeout,
           "Acknowledgement time-out of what the server sends: 4.096 us * 2^n. Not set: 18, which "
           "is 1.07 s, or more where the connection manager asks for more."),
    ranged("rdma.retry_count", KeyType::kNumber, 0, 7, kRetryCount,
           "How often what is not acknowledged is sent again before the connection breaks. Not "
           "set: 7."),
    ranged("rdma.rnr_retry", KeyType::kNumber, 0, 7, kRnrRetry,
           "How often a message that the peer has no receive for is sent again; 7: for ever. Not "
           "set: 6."),

    group("pool", KeyType::kMap, "The memory that the server offers."),
    required(ranged("pool.size", KeyType::kSize, 4 * kKiB, 64 * kTiB, kPoolSize,
                    "Budget of all regions together, a multiple of 4KiB (of 2MiB with "
                    "`huge_pages: require`, of 1GiB with `huge_pages: 1GiB`).")),
    ranged("pool.piece", KeyType::kSize, 4 * kKiB, kGiB, kPoolPiece,
           "Largest registration of memory, a multiple of 4KiB (of 2MiB with `huge_pages: "
           "require`, of 1GiB with `huge_pages: 1GiB`). The pool has at most 65536 pieces."),
    worded("pool.huge_pages", KeyType::kChoice, kHugePagesWords, kPoolHugePages,
           "2MiB pages: `try` takes ordinary pages where no huge page is left, `require` does not "
           "start. Where the pool has huge pages, each region takes whole ones. `1GiB`: pages of "
           "that size, or no start; regions take steps of 2MiB, and those with `shm` take their "
           "memory a second time."),
    ranged("pool.populate", KeyType::kBoolean, 0, 0, kPoolPopulate,
           "Touch every page at start, so that a machine without enough memory fails then."),
    ranged("pool.core_dump", KeyType::kBoolean, 0, 0, kPoolCoreDump,
           "Core dumps of the server contain the pool and the regions with `shm`: readable data of "
           "clients, and as large."),
    ranged("pool.warm_restart", KeyType::kBoolean, 0, 0, kPoolWarmRestart,
           "The memory outlives the process: the next one takes it over from the service manager "
           "(`FileDescriptorStoreMax=`) or from the supervisor of `--warm-fd`, and sessions go on. "
           "The server does not start without either."),

    list("regions", kRegionList, 0, 65536, "Regions that exist from the start."),
    required(free_text("regions[].name", "1 to 64 of `A-Z a-z 0-9 . _ -`, not `.` or `..`",
                       is_region_name, kRegionName, "Unique within the server.")),
    required(ranged("regions[].size", KeyType::kSize, 64, 64 * kTiB, kRegionSize,
                    "A multiple of `block`. A region takes whole pages of 4KiB of the pool.")),
    ranged("regions[].block", KeyType::kSize, 64, 16 * kMiB, kRegionBlock,
           "Unit of addressing, a power of two."),
    worded("regions[].rights", KeyType::kChoices, kRightWords, kRights,
           "The operations that clients may use; `atomic` is compare-and-swap and fetch-and-add."),
    free_text("regions[].atomics", "`auto`, `none`, `cpu` or the name of an RDMA device",
              is_device_name, kRegionAtomics,
              "The agent of atomics: `auto` is `cpu` with `shm`, else the RDMA device if there is "
              "one, else `cpu`. Clients on another path get an error, not lost updates."),
    ranged(
        "regions[].shm", KeyType::kBoolean, 0, 0, kRegionShm,
        "Clients of the same user, or root, on this host may map the region. A mapping cannot be "
        "taken back."),

    list("regions[].access", kAccessList, 1, kAccessMax,
         "With `auth: keys`: the rights of each client. Without it every client has the region's "
         "`rights`. A client with `clients[].admin` needs no entry: it has all `rights`."),
    required(free_text("regions[].access[].client", "the name of one of `clients`, or `*`",
                       is_access_client, kAccessClient, "`*` is every client.")),
    required(
        worded("regions[].access[].rights", KeyType::kChoices, kAccessWords, kAccessRights,
               "`admin` may remove, resize and fence the region; alone it allows neither reading "
               "nor writing. `rights` of the region bound the others.")),

    worded("auth", KeyType::kChoice, kAuthWords, kAuth,
           "How clients prove their identity. `keys`: each client by its key in `clients`, and the "
           "server to the client by the same key. `none` accepts every client that can connect, "
           "and must be written unless `listen.address` is a loopback address."),

    list("clients", kClientList, 1, 4096, "Clients that `auth: keys` accepts."),
    required(free_text("clients[].name", "1 to 64 of `A-Z a-z 0-9 . _ -`, not `.` or `..`",
                       is_client_name, kClientName, "Unique. Any number of processes may use it.")),
    typed(secret(free_text("clients[].key", "64 hexadecimal digits, drawn at random", is_key_text,
                           kClientKey, "The client's key: `remora key generate` makes one."))),
    free_text("clients[].key_file", "a file, seen from this file's folder", is_file_name,
              kClientKeyFile,
              "A file with `key`, instead. Only its owner and group may read it, and only its "
              "owner may change it."),
    typed(secret(free_text("clients[].previous_key", "64 hexadecimal digits, drawn at random",
                           is_key_text, kClientPreviousKey,
                           "A key that is accepted too, while processes change to `key`."))),
    free_text("clients[].previous_key_file", "a file, seen from this file's folder", is_file_name,
              kClientPreviousKeyFile, "A file with `previous_key`, instead."),
    ranged("clients[].create", KeyType::kBoolean, 0, 0, kClientCreate,
           "The client may create regions. They belong to the client: only it and an `admin` may "
           "use them, unless it allows others."),
    ranged("clients[].admin", KeyType::kBoolean, 0, 0, kClientAdmin,
           "The client may create regions, and use, fence, resize and remove every region, "
           "within the region's `rights`. It may list and end sessions, and drain the server."),
    ranged("clients[].quota", KeyType::kSize, 4 * kKiB, 64 * kTiB, kClientQuota,
           "Limit of pool bytes of the regions that the client has created, each rounded up to "
           "4KiB (to 2MiB where the pool has huge pages). Without it only the pool bounds them."),

    group("limits", KeyType::kMap, "Bounds on the resources that clients can use."),
    ranged("limits.sessions_max", KeyType::kNumber, 1, 65536, kSessionsMax,
           "Clients connected at once."),
    ranged("limits.regions_max", KeyType::kNumber, 1, 65536, kRegionsMax,
           "Regions that exist at once, those of this file included."),
    ranged("limits.session_regions_max", KeyType::kNumber, 1, 65536, kSessionRegionsMax,
           "Regions that one session has open at once."),
    ranged("limits.session_memory", KeyType::kSize, 4 * kKiB, 64 * kTiB, kSessionMemory,
           "Limit of bytes of the regions that one session has open at once; a region that is open "
           "twice counts twice. Over rdma with registrations, a session can have so much memory "
           "pinned. Without it only the number of open regions is bounded."),
    ranged("limits.handshake_timeout", KeyType::kDuration, 100 * kMillisecond, 10 * kMinute,
           kHandshakeTimeout, "A connection without a valid hello by then is closed."),
    ranged("limits.request_timeout", KeyType::kDuration, 100 * kMillisecond, kHour, kRequestTimeout,
           "Longest time of one control request. Creating a region includes waiting for memory "
           "that is being zeroed; a smaller request may be served first."),
    ranged("limits.session_lease", KeyType::kDuration, 1000 * kMillisecond, kHour, kSessionLease,
           "A session whose client has sent nothing for so long loses its lanes, except over shm, "
           "where memory stays mapped. Clients send something every quarter of it."),
    ranged("limits.session_keep", KeyType::kDuration, 0, kHour, kSessionKeep,
           "A session that has lost its client keeps its open regions for so long, so that the "
           "client can resume it. 0s: it ends at once."),
    ranged("limits.drain_timeout", KeyType::kDuration, 0, kHour, kDrainTimeout,
           "After a request to stop, the server refuses new clients and tells each session; then "
           "sessions have this long to end by themselves. The server does not wait longer than "
           "they need. 0s: they end at once."),
    ranged("limits.pending_handshakes_max", KeyType::kNumber, 1, 65536, kMaxPendingHandshakes,
           "Connections without a valid hello so far; one more takes the place of the oldest."),
    ranged("limits.requests_per_second", KeyType::kNumber, 10, 1'000'000, kRequestsPerSecond,
           "Control requests of one session; twice as many may come at once. The requests of a "
           "client that asks more often wait."),
    ranged("limits.resumes_per_minute", KeyType::kNumber, 1, 1'000'000, kResumesPerMinute,
           "How often in a minute a session that has lost a lane or its connection may resume; one "
           "more ends it. Each refused access breaks a lane, so this bounds how fast a client can "
           "try keys of memory."),
    ranged("limits.revoke_grace", KeyType::kDuration, kMillisecond, kMinute, kRevokeGrace,
           "A client whose grant is revoked has this long to stop using it; then the grant ends "
           "without the client's agreement."),
    ranged("limits.registrations_max", KeyType::kNumber, 0, 1'000'000'000, kRegistrationsMax,
           "Registrations with all RDMA devices: one for each extent of an open region (sessions "
           "that prove one key share it), control channel and lane. With memory windows, instead "
           "of those of regions: one for each piece of the pool and extent of a region with shm. "
           "Opening a region that needs more is refused. 0: each device's own limit."),
    ranged("limits.windows_max", KeyType::kNumber, 0, 1'000'000'000, kWindowsMax,
           "Memory windows of RDMA devices at once, over all sessions: for each extent of an open "
           "region one for each lane, also while the client is lost and may resume. Opening a "
           "region that needs more is refused. 0: the device's limit."),
    ranged("limits.registered_bytes_max", KeyType::kSize, 4 * kKiB, 16'384 * kTiB,
           kRegisteredBytesMax,
           "Bytes of regions that are registered with RDMA devices at once, over all sessions; "
           "sessions that prove one key share them. With memory windows only those of regions with "
           "shm. Opening a region that needs more is refused. Without it the server's limit on "
           "locked memory is the only bound."),

    group("log", KeyType::kMap, "The log on standard error."),
    worded("log.level", KeyType::kChoice, kLogLevelWords, kLogLevel,
           "Lines less severe than this are not written."),
    worded("log.format", KeyType::kChoice, kLogFormatWords, kLogFormat,
           "`json`: each line is an object with `time`, `level`, `event`, `text` and the fields of "
           "the event."),

    group("metrics", KeyType::kMap, "The HTTP endpoint for Prometheus and health checks."),
    free_text("metrics.address", "`none`, `HOST:PORT` or `[IPv6]:PORT`", is_metrics_address,
              kMetricsAddress,
              "Serves a live page at `/`, `/metrics`, `/status`, `/history`, `/healthz` and "
              "`/readyz`. Not encrypted."),
    secret(free_text("metrics.token", "printable ASCII without spaces and %, at most 1024 bytes",
                     is_token, kMetricsToken,
                     "Readers of `/metrics`, `/status` and `/history` must send it: "
                     "`Authorization: Bearer TOKEN`.")),
    free_text("metrics.token_file", "a file, seen from this file's folder", is_file_name,
              kMetricsTokenFile, "A file with `token`, instead."),
    // A file that says user: NAME:PASSWORD must not bring the password into a log.
    discreet(free_text("metrics.user", "text without colons and line breaks, at most 1024 bytes",
                       is_user, kMetricsUser,
                       "The same by HTTP Basic, which browsers ask for; with `password`. Where "
                       "there is a token too, either is accepted.")),
    secret(free_text("metrics.password", "one line of at most 1024 bytes", is_password,
                     kMetricsPassword, "The password of `user`.")),
    free_text("metrics.password_file", "a file, seen from this file's folder", is_file_name,
              kMetricsPasswordFile, "A file with `password`, instead."),
    free_text("metrics.allowed_hosts", "up to 64 host names divided by commas, or `*`",
              are_host_names, kAllowedHosts,
              "Names in `Host` that the endpoint answers to, besides addresses, `localhost`, the "
              "machine's name and that of `metrics.address`; `*`: any. Other names get a 421, "
              "against DNS rebinding. `/healthz` and `/readyz` answer to any name."),
};

}  // namespace

std::span<const Key> keys() { return kKeys; }

}  // namespace remora::config
