#include "keys.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>

#include <remora/config/units.h>

#include "hosts.h"
#include "text.h"

namespace remora::config {
namespace {

using namespace std::string_view_literals;  // NOLINT(google-build-using-namespace): literals only

constexpr std::uint64_t kKiB = 1ULL << 10U;
constexpr std::uint64_t kMiB = 1ULL << 20U;
constexpr std::uint64_t kGiB = 1ULL << 30U;
constexpr std::uint64_t kTiB = 1ULL << 40U;
constexpr std::uint64_t kMillisecond = 1'000'000;
constexpr std::uint64_t kSecond = 1'000 * kMillisecond;
constexpr std::uint64_t kMinute = 60'000 * kMillisecond;
constexpr std::uint64_t kHour = 60 * kMinute;

// In the order of their enumerators.
constexpr std::array kAvailabilityWords{"off"sv, "auto"sv, "required"sv};
constexpr std::array kHugePagesWords{"never"sv, "try"sv, "require"sv};
constexpr std::array kAuthWords{"none"sv};
constexpr std::array kLogLevelWords{"trace"sv, "debug"sv, "info"sv, "warn"sv, "error"sv, "off"sv};
constexpr std::array kRightWords{"read"sv, "write"sv, "atomic"sv};

struct Access {
  void (*write)(ServerConfig&, std::size_t, const Value&);
  std::optional<Value> (*read)(const ServerConfig&, std::size_t);
};

// Made in place: GCC 12 takes the move of a temporary Value for a use of what was never set.
template <typename T, typename Source>
std::optional<Value> holding(Source&& source) {
  return std::optional<Value>{std::in_place, std::in_place_type<T>, std::forward<Source>(source)};
}

// Each takes a stateless lambda from (config, region) to a reference to the field.
template <typename Field>
constexpr Access boolean(Field /*field*/) {
  return {[](ServerConfig& c, std::size_t r, const Value& v) { Field{}(c, r) = std::get<bool>(v); },
          [](const ServerConfig& c, std::size_t r) -> std::optional<Value> {
            return holding<bool>(Field{}(c, r));
          }};
}

template <typename Field>
constexpr Access number(Field /*field*/) {
  return {[](ServerConfig& c, std::size_t r, const Value& v) {
            auto& field = Field{}(c, r);
            field =
                static_cast<std::remove_reference_t<decltype(field)>>(std::get<std::uint64_t>(v));
          },
          [](const ServerConfig& c, std::size_t r) -> std::optional<Value> {
            return holding<std::uint64_t>(Field{}(c, r));
          }};
}

template <typename Field>
constexpr Access duration(Field /*field*/) {
  return {[](ServerConfig& c, std::size_t r, const Value& v) {
            Field{}(c, r) = std::get<std::chrono::nanoseconds>(v);
          },
          [](const ServerConfig& c, std::size_t r) -> std::optional<Value> {
            return holding<std::chrono::nanoseconds>(Field{}(c, r));
          }};
}

template <typename Field>
constexpr Access text(Field /*field*/) {
  return {[](ServerConfig& c, std::size_t r, const Value& v) {
            Field{}(c, r) = std::get<std::string>(v);
          },
          [](const ServerConfig& c, std::size_t r) -> std::optional<Value> {
            return holding<std::string>(Field{}(c, r));
          }};
}

// An enumeration whose to_string() gives the words; `find` turns a word back.
template <typename Enum, typename Field>
constexpr Access choice(Field /*field*/) {
  return {[](ServerConfig& c, std::size_t r, const Value& v) {
            const auto& word = std::get<std::string>(v);
            for (std::uint8_t i = 0; i < std::numeric_limits<std::uint8_t>::max(); ++i)
              if (to_string(static_cast<Enum>(i)) == word) {
                Field{}(c, r) = static_cast<Enum>(i);
                return;
              }
          },
          [](const ServerConfig& c, std::size_t r) -> std::optional<Value> {
            return holding<std::string>(to_string(Field{}(c, r)));
          }};
}

constexpr Access kAuth{[](ServerConfig& c, std::size_t, const Value&) { c.auth = Auth::kNone; },
                       [](const ServerConfig& c, std::size_t) -> std::optional<Value> {
                         if (!c.auth) return std::nullopt;
                         return holding<std::string>(to_string(*c.auth));
                       }};

// The word for "no device named" is `auto`, in the struct it is the empty text.
constexpr Access kRdmaDevice{[](ServerConfig& c, std::size_t, const Value& v) {
                               const auto& name = std::get<std::string>(v);
                               c.transports.rdma_device = name == "auto" ? std::string{} : name;
                             },
                             [](const ServerConfig& c, std::size_t) -> std::optional<Value> {
                               return holding<std::string>(c.transports.rdma_device.empty()
                                                               ? "auto"
                                                               : c.transports.rdma_device);
                             }};

constexpr Access kMetricsAddress{[](ServerConfig& c, std::size_t, const Value& v) {
                                   const auto& address = std::get<std::string>(v);
                                   c.metrics.address =
                                       address == "none" ? std::nullopt : std::optional{address};
                                 },
                                 [](const ServerConfig& c, std::size_t) -> std::optional<Value> {
                                   return holding<std::string>(c.metrics.address.value_or("none"));
                                 }};

constexpr Access kRights{[](ServerConfig& c, std::size_t r, const Value& v) {
                           const auto& words = std::get<std::vector<std::string>>(v);
                           const auto has = [&words](std::string_view word) {
                             return std::find(words.begin(), words.end(), word) != words.end();
                           };
                           c.regions[r].rights = {has("read"), has("write"), has("atomic")};
                         },
                         [](const ServerConfig& c, std::size_t r) -> std::optional<Value> {
                           const RegionRights& rights = c.regions[r].rights;
                           std::vector<std::string> words;
                           if (rights.read) words.emplace_back("read");
                           if (rights.write) words.emplace_back("write");
                           if (rights.atomic) words.emplace_back("atomic");
                           return holding<std::vector<std::string>>(std::move(words));
                         }};

// Not set where it is empty.
template <typename Field>
constexpr Access optional_text(Field field) {
  Access access = text(field);
  access.read = [](const ServerConfig& c, std::size_t r) -> std::optional<Value> {
    if (Field{}(c, r).empty()) return std::nullopt;
    return holding<std::string>(Field{}(c, r));
  };
  return access;
}

bool is_metrics_address(std::string_view value) {
  return value == "none" || parse_endpoint(value).ok();
}

constexpr std::size_t kCredentialBytesMax = 1'024;

// What the header of a request can carry.
bool is_token(std::string_view value) {
  return !value.empty() && value.size() <= kCredentialBytesMax &&
         std::all_of(value.begin(), value.end(),
                     [](char c) { return c > ' ' && c < '\x7f' && c != '%'; });
}

bool is_password(std::string_view value) {
  return !value.empty() && value.size() <= kCredentialBytesMax &&
         std::none_of(value.begin(), value.end(), [](char c) {
           const auto byte = static_cast<unsigned char>(c);
           return byte < 0x20 || byte == 0x7f;
         });
}

bool is_user(std::string_view value) {
  return is_password(value) && value.find(':') == std::string_view::npos;
}

bool is_file_name(std::string_view value) {
  return !value.empty() && value.find('\0') == std::string_view::npos;
}

// A map's or list's own entry.
constexpr Key group(std::string_view path, KeyType type, std::string_view help,
                    std::uint64_t max = 0) {
  Key key;
  key.path = path;
  key.type = type;
  key.max = max;
  key.help = help;
  return key;
}

constexpr Key ranged(std::string_view path, KeyType type, std::uint64_t min, std::uint64_t max,
                     Access access, std::string_view help) {
  Key key = group(path, type, help, max);
  key.min = min;
  key.write = access.write;
  key.read = access.read;
  return key;
}

constexpr Key worded(std::string_view path, KeyType type, std::span<const std::string_view> words,
                     Access access, std::string_view help) {
  Key key = ranged(path, type, 0, 0, access, help);
  key.words = words;
  return key;
}

constexpr Key free_text(std::string_view path, std::string_view accepts,
                        bool (*check)(std::string_view), Access access, std::string_view help) {
  Key key = ranged(path, KeyType::kText, 0, 0, access, help);
  key.accepts = accepts;
  key.check = check;
  return key;
}

constexpr Key secret(Key key) {
  key.secret = true;
  return key;
}

constexpr Key required(Key key) {
  key.required = true;
  return key;
}

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
constexpr auto kRdma =
    choice<Availability>([](auto& c, std::size_t) -> auto& { return c.transports.rdma; });
constexpr auto kShm =
    choice<Availability>([](auto& c, std::size_t) -> auto& { return c.transports.shm; });
constexpr auto kTcp =
    choice<Availability>([](auto& c, std::size_t) -> auto& { return c.transports.tcp; });
constexpr auto kTcpSpin =
    duration([](auto& c, std::size_t) -> auto& { return c.transports.tcp_spin; });
constexpr auto kPoolSize = number([](auto& c, std::size_t) -> auto& { return c.pool.size_bytes; });
constexpr auto kPoolPiece =
    number([](auto& c, std::size_t) -> auto& { return c.pool.piece_bytes; });
constexpr auto kPoolHugePages =
    choice<HugePages>([](auto& c, std::size_t) -> auto& { return c.pool.huge_pages; });
constexpr auto kPoolPopulate =
    boolean([](auto& c, std::size_t) -> auto& { return c.pool.populate; });
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
constexpr auto kSessionsMax =
    number([](auto& c, std::size_t) -> auto& { return c.limits.sessions_max; });
constexpr auto kRegionsMax =
    number([](auto& c, std::size_t) -> auto& { return c.limits.regions_max; });
constexpr auto kSessionRegionsMax =
    number([](auto& c, std::size_t) -> auto& { return c.limits.session_regions_max; });
constexpr auto kHandshakeTimeout =
    duration([](auto& c, std::size_t) -> auto& { return c.limits.handshake_timeout; });
constexpr auto kRequestTimeout =
    duration([](auto& c, std::size_t) -> auto& { return c.limits.request_timeout; });
constexpr auto kDrainTimeout =
    duration([](auto& c, std::size_t) -> auto& { return c.limits.drain_timeout; });
constexpr auto kRevokeGrace =
    duration([](auto& c, std::size_t) -> auto& { return c.limits.revoke_grace; });
constexpr auto kLogLevel =
    choice<LogLevel>([](auto& c, std::size_t) -> auto& { return c.log.level; });

constexpr std::array kKeys{
    group("listen", KeyType::kMap, "Where clients connect."),
    free_text("listen.address", "an IPv4 or IPv6 address or a host name", is_host, kListenAddress,
              "`0.0.0.0` and `::` mean every address. Other than a loopback address it needs "
              "`auth`."),
    ranged("listen.port", KeyType::kNumber, 0, 65535, kListenPort,
           "Port of TCP and of the RDMA connection manager; the path of the shared-memory socket "
           "derives from it. 0 takes a free one."),

    group("transports", KeyType::kMap, "Which data paths are offered; at least one."),
    worded("transports.rdma", KeyType::kChoice, kAvailabilityWords, kRdma,
           "`auto`: where a device is found; `required`: the server does not start without one."),
    free_text("transports.rdma_device", "`auto` or the name of an RDMA device", is_device_name,
              kRdmaDevice,
              "The only device to use, such as `mlx5_0`; `auto`: the one that routes to "
              "`listen.address`."),
    worded("transports.shm", KeyType::kChoice, kAvailabilityWords, kShm,
           "Shared memory with clients of the same user on this host; a region must allow it "
           "too."),
    worded("transports.tcp", KeyType::kChoice, kAvailabilityWords, kTcp,
           "TCP on `listen.address` and `listen.port`, for machines without RDMA; a thread of the "
           "server copies."),
    ranged("transports.tcp_spin", KeyType::kDuration, 0, kSecond, kTcpSpin,
           "How long that thread looks for requests before it sleeps. A request that finds it "
           "awake is served tens of microseconds sooner; the price is a core for so long after "
           "each one."),

    group("pool", KeyType::kMap, "The memory that is lent."),
    required(ranged("pool.size", KeyType::kSize, 4 * kKiB, 64 * kTiB, kPoolSize,
                    "Budget of all regions together, a multiple of 4KiB (of 2MiB with "
                    "`huge_pages: require`).")),
    ranged("pool.piece", KeyType::kSize, 4 * kKiB, kGiB, kPoolPiece,
           "Longest stretch that is registered at once, a multiple of 4KiB (of 2MiB with "
           "`huge_pages: require`). The pool has at most 65536 pieces."),
    worded("pool.huge_pages", KeyType::kChoice, kHugePagesWords, kPoolHugePages,
           "2MiB pages: `try` takes ordinary ones where none are left, `require` does not start."),
    ranged("pool.populate", KeyType::kBoolean, 0, 0, kPoolPopulate,
           "Touch every page at start, so that a machine without the memory fails then."),

    group("regions", KeyType::kList, "Regions that exist from the start.", 65536),
    required(free_text("regions[].name", "1 to 64 of `A-Z a-z 0-9 . _ -`, not `.` or `..`",
                       is_region_name, kRegionName, "Unique within the server.")),
    required(ranged("regions[].size", KeyType::kSize, 64, 64 * kTiB, kRegionSize,
                    "A multiple of `block`. Takes whole pages of 4KiB of the pool.")),
    ranged("regions[].block", KeyType::kSize, 64, 16 * kMiB, kRegionBlock,
           "Unit of addressing, a power of two."),
    worded("regions[].rights", KeyType::kChoices, kRightWords, kRights,
           "What clients may do; `atomic` is compare-and-swap and fetch-and-add."),
    free_text("regions[].atomics", "`auto`, `none`, `cpu` or the name of an RDMA device",
              is_device_name, kRegionAtomics,
              "Who carries out atomics: `auto` is `cpu` with `shm`, else the RDMA device if there "
              "is one, else `cpu`. Clients on another path get an error, not lost updates."),
    ranged("regions[].shm", KeyType::kBoolean, 0, 0, kRegionShm,
           "Clients of the same user on this host may map the region. A mapping cannot be taken "
           "back."),

    worded("auth", KeyType::kChoice, kAuthWords, kAuth,
           "How clients prove who they are. `none` lets in anybody who can connect and must be "
           "written out unless `listen.address` is a loopback address."),

    group("limits", KeyType::kMap, "Bounds on what clients can make the server do."),
    ranged("limits.sessions_max", KeyType::kNumber, 1, 65536, kSessionsMax,
           "Clients connected at once."),
    ranged("limits.regions_max", KeyType::kNumber, 1, 65536, kRegionsMax,
           "Regions that exist at once, those of this file included."),
    ranged("limits.session_regions_max", KeyType::kNumber, 1, 65536, kSessionRegionsMax,
           "Regions that one session has open at once."),
    ranged("limits.handshake_timeout", KeyType::kDuration, 100 * kMillisecond, 10 * kMinute,
           kHandshakeTimeout, "A connection without a valid hello by then is closed."),
    ranged("limits.request_timeout", KeyType::kDuration, 100 * kMillisecond, kHour, kRequestTimeout,
           "Longest time for one control request; creating a region includes zeroing it."),
    ranged("limits.drain_timeout", KeyType::kDuration, 0, kHour, kDrainTimeout,
           "After a request to stop, which refuses newcomers, sessions get this long to end by "
           "themselves."),
    ranged("limits.revoke_grace", KeyType::kDuration, kMillisecond, kMinute, kRevokeGrace,
           "A client whose grant is taken back gets this long to stop using it; then it goes "
           "anyway."),

    group("log", KeyType::kMap, "What is written to standard error."),
    worded("log.level", KeyType::kChoice, kLogLevelWords, kLogLevel,
           "Lines less severe than this are not written."),

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
              kMetricsTokenFile, "Where to read `token` from instead."),
    free_text("metrics.user", "text without colons and line breaks, at most 1024 bytes", is_user,
              kMetricsUser,
              "The same by HTTP Basic, which browsers ask for; with `password`. Where there is a "
              "token too, either will do."),
    secret(free_text("metrics.password", "one line of at most 1024 bytes", is_password,
                     kMetricsPassword, "The password of `user`.")),
    free_text("metrics.password_file", "a file, seen from this file's folder", is_file_name,
              kMetricsPasswordFile, "Where to read `password` from instead."),
};

// Without the marks that documentation puts around code.
std::string without_backticks(std::string_view text_with_marks) {
  std::string result{text_with_marks};
  std::erase(result, '`');
  return result;
}

std::string outside(const Key& key, const std::string& found) {
  return "must be " + range_text(key) + ", found " + found;
}

std::string check_words(const Key& key, const std::vector<std::string>& words) {
  if (words.empty()) return "empty: name at least one of " + join(key.words, "and");
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (std::find(key.words.begin(), key.words.end(), words[i]) == key.words.end())
      return outside(key, in_quotes(words[i]));
    const auto end = words.begin() + static_cast<std::ptrdiff_t>(i);
    if (std::find(words.begin(), end, words[i]) != end)
      return in_quotes(words[i]) + " stands there twice";
  }
  return {};
}

// Words that YAML or a reader might take for something else are put in quotes.
std::string yaml_scalar(std::string_view value) {
  const auto is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  };
  constexpr std::array kNulls{"null"sv, "Null"sv, "NULL"sv};
  if (!value.empty() && std::all_of(value.begin(), value.end(), is_plain) && value[0] != '-' &&
      value[0] != '.' && std::find(kNulls.begin(), kNulls.end(), value) == kNulls.end())
    return std::string{value};
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string result = "\"";
  for (std::size_t i = 0; i < value.size(); ++i) {
    const auto byte = static_cast<unsigned char>(value[i]);
    if (byte < 0x20 || byte == 0x7f) {
      result.append("\\x").append(1, kHex[byte >> 4U]).append(1, kHex[byte & 15U]);
      continue;
    }
    if (value[i] == '"' || value[i] == '\\') result.push_back('\\');
    if (value.substr(i).starts_with("${")) result.push_back('$');
    result.push_back(value[i]);
  }
  return result.append("\"");
}

}  // namespace

std::span<const Key> keys() { return kKeys; }

const Key* find_key(std::string_view path) {
  const auto* const key = std::find_if(kKeys.begin(), kKeys.end(),
                                       [path](const Key& each) { return each.path == path; });
  return key == kKeys.end() ? nullptr : key;
}

std::string_view leaf(std::string_view path) {
  const std::size_t dot = path.rfind('.');
  return dot == std::string_view::npos ? path : path.substr(dot + 1);
}

std::string_view parent(std::string_view path) {
  const std::size_t dot = path.rfind('.');
  return dot == std::string_view::npos ? std::string_view{} : path.substr(0, dot);
}

std::vector<std::string_view> children(std::string_view path) {
  std::vector<std::string_view> result;
  for (const Key& key : kKeys)
    if (parent(key.path) == path) result.push_back(leaf(key.path));
  return result;
}

std::string range_text(const Key& key) {
  const auto between = [](const std::string& low, const std::string& high) {
    return low + " to " + high;
  };
  switch (key.type) {
    case KeyType::kMap: return {};
    case KeyType::kList: return "at most " + std::to_string(key.max);
    case KeyType::kText: return without_backticks(key.accepts);
    case KeyType::kBoolean: return "true or false";
    case KeyType::kNumber: return between(std::to_string(key.min), std::to_string(key.max));
    case KeyType::kSize: return between(format_size(key.min), format_size(key.max));
    case KeyType::kDuration:
      return between(format_duration(std::chrono::nanoseconds{static_cast<std::int64_t>(key.min)}),
                     format_duration(std::chrono::nanoseconds{static_cast<std::int64_t>(key.max)}));
    case KeyType::kChoice: return join(key.words, "or");
    case KeyType::kChoices: return "one or more of " + join(key.words, "and");
  }
  return {};
}

std::string check_value(const Key& key, const Value& value) {
  switch (key.type) {
    case KeyType::kMap:
    case KeyType::kList:
    case KeyType::kBoolean: return {};
    case KeyType::kNumber:
    case KeyType::kSize: {
      const auto found = std::get<std::uint64_t>(value);
      if (found >= key.min && found <= key.max) return {};
      return outside(key, key.type == KeyType::kSize ? format_size(found) : std::to_string(found));
    }
    case KeyType::kDuration: {
      const auto found = std::get<std::chrono::nanoseconds>(value);
      const std::int64_t count = found.count();
      if (count >= static_cast<std::int64_t>(key.min) &&
          count <= static_cast<std::int64_t>(key.max))
        return {};
      return outside(key, format_duration(found));
    }
    case KeyType::kText: {
      const auto& found = std::get<std::string>(value);
      if (key.check(found)) return {};
      // Who writes user: NAME:PASSWORD must not read the password in a log.
      if (key.secret || key.check == is_user) return "must be " + range_text(key);
      return outside(key, in_quotes(found));
    }
    case KeyType::kChoice: {
      const auto& found = std::get<std::string>(value);
      if (std::find(key.words.begin(), key.words.end(), found) != key.words.end()) return {};
      return outside(key, in_quotes(found));
    }
    case KeyType::kChoices: return check_words(key, std::get<std::vector<std::string>>(value));
  }
  return {};
}

std::string yaml_text(const Key& key, const Value& value) {
  switch (key.type) {
    case KeyType::kMap:
    case KeyType::kList: return {};
    case KeyType::kBoolean: return std::get<bool>(value) ? "true" : "false";
    case KeyType::kNumber: return std::to_string(std::get<std::uint64_t>(value));
    case KeyType::kSize: return format_size(std::get<std::uint64_t>(value));
    case KeyType::kDuration: return format_duration(std::get<std::chrono::nanoseconds>(value));
    case KeyType::kText:
    case KeyType::kChoice:
      // Whoever reads that back is told that the secret is missing, and not let in without one.
      return key.secret ? "${HIDDEN}" : yaml_scalar(std::get<std::string>(value));
    case KeyType::kChoices: {
      const auto& words = std::get<std::vector<std::string>>(value);
      std::string list;
      for (const std::string& word : words) list.append(list.empty() ? "" : ", ").append(word);
      return "[" + list + "]";
    }
  }
  return {};
}

}  // namespace remora::config
