#include "transport/rdma/session_route.h"

#include <algorithm>
#include <utility>

#include "transport/rdma/device_addresses.h"

namespace remora::transport::rdma {

Result<ClientRails::Route> route_of_session(ClientDomain& memory, const verbs::Address& peer,
                                            const std::vector<std::string>& tried,
                                            Deadline deadline,
                                            const ClientRails::Options& options) {
  if (memory.may_move_now())
    return ClientRails::route_to(peer, RailChoice{}, tried, deadline, options);
  auto connector = resolve_over(memory.device(), peer, deadline, options.route, *options.provider);
  if (!connector) return connector.error();
  return ClientRails::Route{.connector = std::move(*connector)};
}

std::size_t devices_to_try(ClientDomain& memory, const ClientRails::Options& options) {
  if (!memory.may_move_now()) return 1;
  return std::max<std::size_t>(ClientRails::usable_devices(RailChoice{}, options).size(), 1);
}

}  // namespace remora::transport::rdma
