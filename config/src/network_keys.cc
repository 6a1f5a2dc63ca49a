// Keys for the address, the transports and the use of the network.

#include <array>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "hosts.h"
#include "key_builders.h"
#include "key_checks.h"
#include "key_tables.h"

namespace remora::config {
namespace {

using namespace key_builders;  // NOLINT(google-build-using-namespace): the words of the table
using namespace std::string_view_literals;  // NOLINT(google-build-using-namespace): literals only

// In the order of their enumerators.
constexpr std::array kAvailabilityWords{"off"sv, "auto"sv, "required"sv};
constexpr std::array kProtectionWords{"auto"sv, "registrations"sv, "windows"sv,
                                      "windows-unchecked"sv};
constexpr std::array kAnyDeviceWords{"auto"sv};
constexpr std::array kMtuWords{"256"sv, "512"sv, "1024"sv, "2048"sv, "4096"sv};

// The word for "no device named" is `auto`; in the struct it is the empty list.
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

constexpr std::array kNetworkKeys{
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
};

}  // namespace

std::span<const Key> network_keys() { return kNetworkKeys; }

}  // namespace remora::config
