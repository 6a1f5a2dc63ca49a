#pragma once

/// Settings of the fabric on the queue pairs of a session, for both sides.

#include <cstdint>
#include <optional>
#include <string>

#include <remora/config/rdma_settings.h>
#include <remora/result.h>
#include <remora/verbs/connector.h>
#include <remora/verbs/device.h>
#include <remora/verbs/queue_pair.h>

namespace remora::transport::rdma {

/// Acknowledgement time-out of a session's queue pairs, unless the configuration sets another one:
/// 4.096 us * 2^18 is 1.07 s. A device waits at least this time before it sends a request again, at
/// most 7 times, so it gives up after 8.6 s at the earliest: a switch that restarts a link, or a
/// failover of some seconds, breaks no lane. The engine enforces the deadlines of operations
/// itself.
inline constexpr std::uint8_t kAckTimeoutLeast = 18;

/// The settings that the connections over `port` of `device` do not use, and why; empty: they use
/// all. apply() logs the text, once for each device. See server_half() for a server's traffic
/// class.
[[nodiscard]] std::string without_effect(const config::RdmaSettings& settings,
                                         const verbs::Device& device, std::uint8_t port);

/// Options that the kernel needs before it resolves the route to a server.
[[nodiscard]] verbs::ConnectorOptions route_options(const config::RdmaSettings& settings) noexcept;

/// Whether an active port of `device` has the partition key and the GID of `settings`, which a
/// server's file sets. The device may have other ports without them, whose connections are refused.
/// Errors: kNotFound: no active port has both; the subject names the key of the file, and the
/// values of the first port. Errors of querying the ports.
[[nodiscard]] Status check_ports(const config::RdmaSettings& settings, const verbs::Device& device);

/// Sets the settings on `builder`, for a connection over `port` of `device`.
/// Errors: kNotFound: the port has no such partition key or no such GID; the subject lists the
/// port's values. Errors of querying the port.
Status apply(const config::RdmaSettings& settings, const verbs::Device& device, std::uint8_t port,
             verbs::QueuePairBuilder<verbs::Rc>& builder);

/// The settings of the server's half of a connection whose client sends packets of `client_mtu`
/// bytes at most; 0: the client did not tell, so it sends the largest packets of the port. Over
/// iWARP the result has no traffic class, which only a client can set there; that is logged.
/// Errors: kUnsupported: `client_mtu` is larger than the server's own `mtu`; errors of querying the
/// port.
[[nodiscard]] Result<config::RdmaSettings> server_half(const config::RdmaSettings& settings,
                                                       std::uint32_t client_mtu,
                                                       const verbs::Device& device,
                                                       std::uint8_t port);

}  // namespace remora::transport::rdma
