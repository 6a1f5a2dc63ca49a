#include <algorithm>
#include <cerrno>
#include <cstring>

#include <remora/verbs/address_handle.h>
#include <remora/verbs/teardown.h>

#include "errors.h"
#include "route.h"

namespace remora::verbs {

ibv_ah_attr AddressVector::raw() const noexcept {
  ibv_ah_attr attributes{};
  attributes.port_num = port;
  attributes.dlid = lid;
  attributes.sl = service_level;
  attributes.src_path_bits = source_path_bits;
  attributes.static_rate = static_rate;
  if (!route) return attributes;
  attributes.is_global = 1;
  attributes.grh.dgid = route->destination.raw();
  attributes.grh.sgid_index = route->source_index;
  attributes.grh.hop_limit = route->hop_limit;
  attributes.grh.traffic_class = route->traffic_class;
  attributes.grh.flow_label = route->flow_label;
  return attributes;
}

AddressVector AddressVector::from(const ibv_ah_attr& raw) noexcept {
  AddressVector path;
  path.port = raw.port_num;
  path.lid = raw.dlid;
  path.service_level = raw.sl;
  path.source_path_bits = raw.src_path_bits;
  path.static_rate = raw.static_rate;
  if (raw.is_global != 0)
    path.route = GlobalRoute{Gid::from(raw.grh.dgid), raw.grh.sgid_index, raw.grh.hop_limit,
                             raw.grh.traffic_class, raw.grh.flow_label};
  return path;
}

std::ostream& operator<<(std::ostream& out, const AddressVector& path) {
  out << "port " << +path.port << " lid " << path.lid << " sl " << +path.service_level;
  if (path.route)
    out << " from gid " << +path.route->source_index << " to "
        << path.route->destination.to_string() << " hops " << +path.route->hop_limit << " class "
        << +path.route->traffic_class << " flow " << path.route->flow_label;
  return out;
}

Result<AddressHandle> AddressHandle::create(const ProtectionDomain& domain,
                                            const AddressVector& path) {
  if (domain.empty())
    return Error{Code::kInvalidArgument, "ibv_create_ah"}.with_subject("no protection domain");
  const Device& device = domain.device();
  const std::uint8_t ports = device.attributes().port_count;
  if (path.port == 0 || path.port > ports)
    return Error{Code::kInvalidArgument, "ibv_create_ah"}
        .with_subject("port of " + std::string{device.name()})
        .with_limit(path.port, ports);
  ibv_ah_attr attributes = path.raw();
  errno = 0;
  ibv_ah* const raw = device.provider().create_ah(domain.raw(), &attributes);
  if (raw != nullptr) return AddressHandle{raw, domain, path};
  const Error error = detail::provider_error("ibv_create_ah", detail::errno_of(-1));
  if (!path.route) return error.with_subject(device.name());
  return detail::route_error(device, error, "ibv_create_ah", path.port, path.route->source_index,
                             path.route->destination);
}

Result<AddressHandle> AddressHandle::reply(const ProtectionDomain& domain,
                                           const Completion& completion,
                                           std::span<const std::byte> header, std::uint8_t port) {
  constexpr Operation kOperation = "ibv_init_ah_from_wc";
  if (domain.empty() || !completion.ok() || !completion.is_receive())
    return Error{Code::kInvalidArgument, kOperation}.with_subject("not a received datagram");
  if (header.size() < kDatagramHeaderBytes)
    return Error{Code::kInvalidArgument, kOperation}
        .with_subject("route header")
        .with_limit(header.size(), kDatagramHeaderBytes);
  static_assert(sizeof(ibv_grh) == kDatagramHeaderBytes);
  ibv_grh route{};
  std::memcpy(&route, header.data(), sizeof(route));
  ibv_wc copy = completion.raw();
  ibv_ah_attr attributes{};
  const Device& device = domain.device();
  errno = 0;
  const int result =
      device.provider().init_ah_from_wc(device.raw(), port, &copy, &route, &attributes);
  if (result != 0)
    return detail::provider_error(kOperation, detail::errno_of(result)).with_subject(device.name());
  return create(domain, AddressVector::from(attributes));
}

void AddressHandle::Destroy::operator()(ibv_ah* handle) const noexcept {
  const int result = domain.device().provider().destroy_ah(handle);
  if (result != 0)
    report_teardown_failure(detail::provider_error("ibv_destroy_ah", detail::errno_of(result)));
}

Result<DatagramPeer> DatagramPeer::create(const ProtectionDomain& domain,
                                          const DatagramEndpoint& peer,
                                          const AddressVector& source) {
  AddressVector path = source;
  path.lid = peer.lid;
  if (path.route) path.route->destination = peer.gid;
  auto handle = AddressHandle::create(domain, path);
  if (!handle) return handle.error();
  return DatagramPeer{std::move(*handle), peer.qp_number, peer.qkey};
}

}  // namespace remora::verbs
