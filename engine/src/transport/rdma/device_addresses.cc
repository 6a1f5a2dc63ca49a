#include "transport/rdma/device_addresses.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <netinet/in.h>
#include <optional>
#include <utility>

namespace remora::transport::rdma {

namespace {

verbs::Address address_of(const verbs::Gid& gid) noexcept {
  constexpr std::size_t kIpv4Begin = 12;  // of ::ffff:a.b.c.d
  if (gid.is_ipv4_mapped()) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    std::memcpy(&address.sin_addr, gid.bytes.data() + kIpv4Begin, sizeof address.sin_addr);
    return verbs::Address::from(reinterpret_cast<const sockaddr*>(&address));
  }
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  std::memcpy(&address.sin6_addr, gid.bytes.data(), sizeof address.sin6_addr);
  return verbs::Address::from(reinterpret_cast<const sockaddr*>(&address));
}

bool on_active_ethernet(const verbs::Device& device, std::uint8_t port) {
  const auto attributes = device.query_port(port);
  return attributes && attributes->active() &&
         attributes->link_layer == verbs::LinkLayer::kEthernet;
}

}  // namespace

std::vector<verbs::Address> addresses_of(const verbs::Device& device) {
  std::vector<verbs::Address> addresses;
  const auto gids = device.query_gids();
  if (!gids) return addresses;
  for (const verbs::GidEntry& entry : *gids) {
    const verbs::Gid& gid = entry.gid;
    if (gid.is_zero() || gid.is_link_local() || gid.is_loopback() ||
        entry.type != verbs::GidType::kRoceV2 || !on_active_ethernet(device, entry.port))
      continue;
    const verbs::Address address = address_of(gid);
    if (std::find(addresses.begin(), addresses.end(), address) == addresses.end())
      addresses.push_back(address);
  }
  return addresses;
}

Result<verbs::Device> find_device(const std::string& name, const verbs::Provider& provider) {
  const auto all = verbs::connection_manager_devices(provider);
  if (!all) return all.error();
  for (const verbs::Device& device : *all)
    if (device.name() == name && !device.gone()) return device;
  return Error{Code::kNotFound, "RDMA device"}.with_subject(name);
}

Result<verbs::Connector> resolve_over(const std::string& device, const verbs::Address& peer,
                                      Deadline deadline, const verbs::ConnectorOptions& options,
                                      const verbs::Provider& provider) {
  // The time for a route that does not answer, so that other routes get some of the time: the host
  // keeps a route over a port without a carrier.
  constexpr std::chrono::milliseconds kRouteTime{300};
  if (device.empty()) return verbs::Connector::resolve(peer, deadline, options, provider);
  const auto now = Clock::now();
  auto routed = verbs::Connector::resolve(
      peer, now + std::min<Clock::duration>((deadline - now) / 2, kRouteTime), options, provider);
  if (routed && routed->device().name() == device) return routed;
  const auto wanted = find_device(device, provider);
  if (!wanted) return wanted.error();
  for (const verbs::Address& source : addresses_of(*wanted)) {
    if (source.family() != peer.family()) continue;
    verbs::ConnectorOptions from = options;
    from.source = source;
    auto made = verbs::Connector::resolve(peer, std::min(deadline, Clock::now() + kRouteTime), from,
                                          provider);
    if (made && made->device().name() == device) return made;
  }
  // The route may only need more time.
  if (!routed && routed.error().code() == Code::kTimedOut) {
    routed = verbs::Connector::resolve(peer, deadline, options, provider);
    if (!routed || routed->device().name() == device) return routed;
  }
  return Error{Code::kUnreachable, "no address of the device named reaches the server"}
      .with_subject(device);
}

}  // namespace remora::transport::rdma
