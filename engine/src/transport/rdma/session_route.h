#pragma once

/// The device over which an interrupted session connects again.

#include <cstddef>
#include <string>
#include <vector>

#include <remora/result.h>
#include <remora/verbs/address.h>

#include "base/clock.h"
#include "transport/rdma/client_domain.h"
#include "transport/rdma/client_rails.h"
#include "transport/session_domain.h"

namespace remora::transport::rdma {

/// A route to `peer` for the next connection of a session whose memory is in `memory`. While the
/// memory's device is there: a route over that device, from one of its addresses where the host's
/// route leads over another device. Once it has gone: the host's route, or a route from an address
/// of any other device; devices in `tried` are not used, nor are those to which the memory cannot
/// move. **Blocks** until `deadline`. Errors: those of resolve_over() and ClientRails::route_to().
[[nodiscard]] Result<ClientRails::Route> route_of_session(ClientDomain& memory,
                                                          const verbs::Address& peer,
                                                          const std::vector<std::string>& tried,
                                                          Deadline deadline,
                                                          const ClientRails::Options& options);

/// How many devices may be tried for such a connection: at least 1.
[[nodiscard]] std::size_t devices_to_try(ClientDomain& memory, const ClientRails::Options& options);

/// The error of such a connection. While the memory's device is away, a server that does not answer
/// over another device counts as one without a route: then the next attempt, which finds a device
/// that has returned, comes soon (the reconnector makes attempts on a silent server longer). Logs
/// once if other sessions have moved the memory of `session` to a device that does not reach
/// `peer`.
[[nodiscard]] Error error_of_attempt(const ClientDomain& memory, SessionDomain& session,
                                     const verbs::Address& peer, const Error& error);

}  // namespace remora::transport::rdma
