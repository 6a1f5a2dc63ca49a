#pragma once

/// The IP addresses of RDMA devices, and connecting over a chosen device.

#include <string>
#include <vector>

#include <remora/result.h>
#include <remora/verbs/address.h>
#include <remora/verbs/connector.h>
#include <remora/verbs/device.h>

#include "base/clock.h"

namespace remora::transport::rdma {

/// The addresses by which other hosts reach the device: those of its active Ethernet ports, without
/// link-local and loopback addresses, each once. Their ports are 0. Empty if the device has none,
/// or does not report them.
[[nodiscard]] std::vector<verbs::Address> addresses_of(const verbs::Device& device);

/// The device of the host that the connection manager knows by that name. Errors: kNotFound;
/// kProvider.
[[nodiscard]] Result<verbs::Device> find_device(
    const std::string& name, const verbs::Provider& provider = verbs::Provider::system());

/// A route to `peer` over the device of that name: the route that the host's routing takes, if it
/// leads over that device and answers soon; otherwise a route from each of the device's addresses
/// in turn. Empty name: the host's route. **Blocks** until `deadline`. Errors: those of
/// verbs::Connector::resolve(); kNotFound (no such device); kUnreachable (no address of the device
/// reaches the peer).
[[nodiscard]] Result<verbs::Connector> resolve_over(
    const std::string& device, const verbs::Address& peer, Deadline deadline,
    const verbs::ConnectorOptions& options,
    const verbs::Provider& provider = verbs::Provider::system());

}  // namespace remora::transport::rdma
