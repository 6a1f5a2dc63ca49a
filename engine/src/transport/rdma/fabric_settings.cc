#include "transport/rdma/fabric_settings.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <remora/mutex.h>
#include <remora/owned.h>

#include "base/log.h"

namespace remora::transport::rdma {

namespace {

/// The keys of a partition differ only in the highest bit, which distinguishes full from limited
/// members.
constexpr std::uint16_t kPartitionBits = 0x7fff;
constexpr std::uint16_t kFullMember = 0x8000;

/// The error for a port without the configured value. `there`: the values that the port has.
Error not_there(const config::RdmaSettings& setting, const verbs::Device& device, std::uint8_t port,
                const std::string& there) {
  return Error{Code::kNotFound, "rdma setting that the port does not have"}.with_subject(
      to_string(setting) + " on port " + std::to_string(port) + " of " +
      std::string{device.name()} + ", which has " + (there.empty() ? "none" : there));
}

/// "0xffff, 0x8001", with as many keys as an error has room for.
std::string list_of(const std::vector<std::uint16_t>& pkeys) {
  constexpr std::size_t kMaxListed = 3;
  std::string text;
  for (std::size_t i = 0; i < std::min(pkeys.size(), kMaxListed); ++i) {
    const std::string named = to_string(config::RdmaSettings{.pkey = pkeys[i]});
    text.append(i == 0 ? "" : ", ").append(named.substr(named.find('=') + 1));
  }
  if (pkeys.size() > kMaxListed)
    text.append(" and ").append(std::to_string(pkeys.size() - kMaxListed)).append(" more");
  return text;
}

/// "0-3, 7", with as many rows as an error has room for.
std::string list_of(const std::set<std::uint32_t>& rows) {
  constexpr std::size_t kMaxRanges = 4;
  std::string text;
  std::size_t ranges = 0;
  for (auto row = rows.begin(); row != rows.end();) {
    if (++ranges > kMaxRanges) return text + " and more";
    const std::uint32_t first = *row;
    std::uint32_t last = first;
    for (++row; row != rows.end() && *row == last + 1; ++row) last = *row;
    text.append(text.empty() ? "" : ", ").append(std::to_string(first));
    if (last != first) text.append("-").append(std::to_string(last));
  }
  return text;
}

Result<std::uint16_t> index_of_pkey(std::uint16_t pkey, const verbs::Device& device,
                                    std::uint8_t port) {
  const auto attributes = device.query_port(port);
  if (!attributes) return attributes.error();
  // A port may be a full and a limited member of one partition. Two limited members do not reach
  // each other, so the key of the full membership is preferred, as in the kernel.
  std::optional<std::uint16_t> limited;
  std::vector<std::uint16_t> others;
  for (std::uint16_t index = 0; index < attributes->pkey_table_length; ++index) {
    const auto row = device.query_pkey(port, index);
    if (!row || *row == 0) continue;  // 0: an empty row
    if ((*row & kPartitionBits) != (pkey & kPartitionBits)) {
      others.push_back(*row);
      continue;
    }
    if ((*row & kFullMember) != 0) return index;
    if (!limited) limited = index;
  }
  if (limited) return *limited;
  return not_there({.pkey = pkey}, device, port, list_of(others));
}

Status check_gid_index(std::uint8_t wanted, const verbs::Device& device, std::uint8_t port) {
  const auto table = device.query_gids();
  if (!table) return table.error();
  std::set<std::uint32_t> rows;
  for (const verbs::GidEntry& entry : *table)
    if (entry.port == port) rows.insert(entry.index);
  if (rows.contains(wanted)) return {};
  return not_there({.gid_index = wanted}, device, port, list_of(rows));
}

Status check_port(const config::RdmaSettings& settings, const verbs::Device& device,
                  std::uint8_t port) {
  if (settings.pkey)
    if (const auto index = index_of_pkey(*settings.pkey, device, port); !index)
      return index.error();
  if (settings.gid_index) return check_gid_index(*settings.gid_index, device, port);
  return {};
}

/// `bytes`: a power of two from 256 to 4096.
ibv_mtu mtu_of(std::uint16_t bytes) noexcept {
  return static_cast<ibv_mtu>(std::bit_width(bytes) - 8);
}

/// Logs once for each device and text in a process: a session has several lanes, and resumes.
void warn_once(const verbs::Device& device, const std::string& text) {
  struct Told {
    remora::detail::Mutex mutex;
    std::set<std::pair<std::string, std::string>> all REMORA_GUARDED_BY(mutex);
  };
  static remora::detail::PerProcess<Told> process;
  Told& told = process.get();
  const remora::detail::MutexLock lock{told.mutex};
  if (told.all.emplace(std::string{device.name()}, text).second)
    log::warn({"device.setting", "device reason"}, "rdma: {}: {}", device.name(), text);
}

}  // namespace

std::string without_effect(const config::RdmaSettings& settings, const verbs::Device& device,
                           std::uint8_t port) {
  if (device.is_iwarp()) {
    config::RdmaSettings ignored = settings;
    ignored.traffic_class.reset();
    const std::string names = to_string(ignored);
    return names.empty() ? names : "without effect over iWARP: " + names;
  }
  if (!settings.gid_index) return {};
  const auto attributes = device.query_port(port);
  if (!attributes || attributes->link_layer != verbs::LinkLayer::kInfiniBand ||
      attributes->global_route_required)
    return {};
  return "without effect where the route has no global header (GRH), as within an InfiniBand "
         "subnet: " +
         to_string(config::RdmaSettings{.gid_index = settings.gid_index});
}

verbs::ConnectorOptions route_options(const config::RdmaSettings& settings) noexcept {
  verbs::ConnectorOptions options;
  options.ack_timeout = settings.timeout;
  options.traffic_class = settings.traffic_class;
  return options;
}

Status check_ports(const config::RdmaSettings& settings, const verbs::Device& device) {
  if (!settings.pkey && !settings.gid_index) return {};
  std::optional<Error> first;
  for (std::uint8_t port = 1; port <= device.attributes().port_count; ++port) {
    const auto attributes = device.query_port(port);
    if (!attributes || !attributes->active()) continue;
    const Status checked = check_port(settings, device, port);
    if (checked) return {};
    if (!first) first = checked.error();
  }
  if (!first) return {};
  if (first->code() != Code::kNotFound) return *first;
  return first->with_subject("rdma." + std::string{first->subject()});
}

Status apply(const config::RdmaSettings& settings, const verbs::Device& device, std::uint8_t port,
             verbs::QueuePairBuilder<verbs::Rc>& builder) {
  if (const std::string ignored = without_effect(settings, device, port); !ignored.empty())
    warn_once(device, ignored);
  if (settings.pkey) {
    const auto index = index_of_pkey(*settings.pkey, device, port);
    if (!index) return index.error();
    builder.pkey_index(*index);
  }
  if (settings.gid_index) {
    if (auto there = check_gid_index(*settings.gid_index, device, port); !there) return there;
    builder.gid_index(*settings.gid_index);
  }
  if (settings.traffic_class) builder.traffic_class(*settings.traffic_class);
  if (settings.service_level) builder.service_level(*settings.service_level);
  if (settings.mtu) builder.mtu(mtu_of(*settings.mtu));
  if (settings.timeout)
    builder.timeout(*settings.timeout);
  else
    builder.timeout_at_least(kAckTimeoutLeast);
  if (settings.retry_count) builder.retry_count(*settings.retry_count);
  if (settings.rnr_retry) builder.rnr_retry_count(*settings.rnr_retry);
  return {};
}

Result<config::RdmaSettings> server_half(const config::RdmaSettings& settings,
                                         std::uint32_t client_mtu, const verbs::Device& device,
                                         std::uint8_t port) {
  config::RdmaSettings half = settings;
  if (device.is_iwarp() && settings.traffic_class) {
    // The kernel takes the traffic class before it connects, so only a client can set it.
    warn_once(device, "without effect over iWARP: traffic_class of a server");
    half.traffic_class.reset();
  }
  half.mtu.reset();
  if (client_mtu != 0) half.mtu = static_cast<std::uint16_t>(client_mtu);
  if (!settings.mtu) return half;
  std::uint32_t sends = client_mtu;
  if (sends == 0) {
    const auto attributes = device.query_port(port);
    if (!attributes) return attributes.error();
    sends = verbs::mtu_bytes(attributes->active_mtu);
  }
  if (sends > *settings.mtu)
    return Error{Code::kUnsupported, "path MTU of a client"}
        .with_subject("rdma.mtu of the server; the client needs mtu=" +
                      std::to_string(*settings.mtu))
        .with_limit(sends, *settings.mtu);
  return half;
}

}  // namespace remora::transport::rdma
