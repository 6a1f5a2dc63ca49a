#pragma once

/// Settings of the fabric on the queue pairs of a session, of either side.

#include <cstdint>
#include <optional>
#include <string>

#include <remora/config/rdma_settings.h>
#include <remora/result.h>
#include <remora/verbs/connector.h>
#include <remora/verbs/device.h>
#include <remora/verbs/queue_pair.h>

namespace remora::transport::rdma {

/// Acknowledgement time-out of a session's queue pairs, unless the configuration has another one:
/// 4.096 us * 2^18 is 1.07 s. A device waits at least so long before it sends a request again, 7
/// times, so that it gives up after 8.6 s at the earliest: a switch that restarts a link, or a
/// failover of some seconds, breaks no lane. The deadlines of operations are the engine's own.
inline constexpr std::uint8_t kAckTimeoutLeast = 18;

/// Which of the settings the connections over `port` of `device` do not use, and why; empty: they
/// use all. apply() logs that, once for each device. See server_half() for a server's traffic
/// class.
[[nodiscard]] std::string without_effect(const config::RdmaSettings& settings,
                                         const verbs::Device& device, std::uint8_t port);

/// What the kernel has to know before it resolves the route to a server.
[[nodiscard]] verbs::ConnectorOptions route_options(const config::RdmaSettings& settings) noexcept;

/// Whether an active port of `device` has the partition key and the GID of `settings`, which a
/// server's file sets. The device may have other ports without them, whose connections are refused.
/// Errors: kNotFound: no active port has both; the subject names the key of the file, and what the
/// first of the ports has. Those of querying it.
[[nodiscard]] Status check_ports(const config::RdmaSettings& settings, const verbs::Device& device);

/// Gives `builder` the settings, for a connection over `port` of `device`.
/// Errors: kNotFound: the port has no such partition key or no such GID; the subject says what it
/// has. Those of querying it.
Status apply(const config::RdmaSettings& settings, const verbs::Device& device, std::uint8_t port,
             verbs::QueuePairBuilder<verbs::Rc>& builder);

/// The settings of the server's half of a connection whose client sends packets of `client_mtu`
/// bytes at most; 0: it did not say, so it sends what the port can carry. Over iWARP without the
/// traffic class, which only a client can set there; that is logged.
/// Errors: kUnsupported: these are more than the server's own `mtu`; those of querying the port.
[[nodiscard]] Result<config::RdmaSettings> server_half(const config::RdmaSettings& settings,
                                                       std::uint32_t client_mtu,
                                                       const verbs::Device& device,
                                                       std::uint8_t port);

}  // namespace remora::transport::rdma
