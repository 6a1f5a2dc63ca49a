#include "transport/rdma/session_route.h"

#include <algorithm>
#include <utility>

#include <remora/verbs/verbs.h>

#include "base/log.h"
#include "transport/rdma/device_addresses.h"

namespace remora::transport::rdma {

namespace {

/// `tried`, and the devices to which no memory can move. The host's route may lead over one of
/// them, and devices_to_try() counts no attempt for it.
std::vector<std::string> devices_to_avoid(std::vector<std::string> tried,
                                          const ClientRails::Options& options) {
  const std::vector<std::string> usable = ClientRails::usable_devices(RailChoice{}, options);
  const auto all = verbs::connection_manager_devices(*options.provider);
  if (!all) return tried;
  for (const verbs::Device& device : *all)
    if (std::find(usable.begin(), usable.end(), device.name()) == usable.end())
      tried.emplace_back(device.name());
  return tried;
}

}  // namespace

Result<ClientRails::Route> route_of_session(ClientDomain& memory, const verbs::Address& peer,
                                            const std::vector<std::string>& tried,
                                            Deadline deadline,
                                            const ClientRails::Options& options) {
  if (memory.may_move_now())
    return ClientRails::route_to(peer, RailChoice{}, devices_to_avoid(tried, options), deadline,
                                 options);
  auto connector = resolve_over(memory.device(), peer, deadline, options.route, *options.provider);
  if (!connector) return connector.error();
  return ClientRails::Route{.connector = std::move(*connector)};
}

std::size_t devices_to_try(ClientDomain& memory, const ClientRails::Options& options) {
  if (!memory.may_move_now()) return 1;
  return std::max<std::size_t>(ClientRails::usable_devices(RailChoice{}, options).size(), 1);
}

Error error_of_attempt(const ClientDomain& memory, SessionDomain& session,
                       const verbs::Address& peer, const Error& error) {
  const bool may_move = memory.may_move_now();
  // A server that refuses has been reached. Another error may come from memory that other sessions
  // have moved during the attempt: the next one goes over that device.
  const bool unanswered = error.code() == Code::kUnreachable || error.code() == Code::kTimedOut;
  if (const std::string now = memory.device(); !may_move && unanswered && session.left_behind(now))
    log::warn({"device.not_reached", "device other server reason"},
              "rdma: {} has gone, and other sessions have moved its memory to {}, over which {} is "
              "not reached: {}; without that its session ends",
              session.device(), now, peer.to_string(), error.message());
  const bool away = error.code() == Code::kTimedOut && may_move;
  return away ? error.with_reason(Reason::kUnreachable) : error;
}

}  // namespace remora::transport::rdma
