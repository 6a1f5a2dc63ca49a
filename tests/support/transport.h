#pragma once

/// Which transports are tested here, and at which addresses: read from the environment.
///
/// | variable | meaning |
/// |---|---|
/// | REMORA_TEST_TRANSPORT | `shm`, `tcp` or `rdma`: only that one; unset: all |
/// | REMORA_VM_ADDRESS | address of the RDMA device; unset: no device |
/// | REMORA_REQUIRE_DEVICE | `1`: a missing device is a failure, not a reason to skip |
/// | REMORA_TEST_PROTECTION | `transports.rdma_protection` of servers of our own; unset: auto |
/// | REMORA_TEST_SERVER | `address:port` of a server that runs elsewhere; unset: one of our own |

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <remora/config/server_config.h>
#include <remora/engine/types.h>

namespace remora::test {

/// The transports that the environment asks for. An unknown name ends the program with a message.
std::vector<TransportKind> transports_under_test();

/// Why `transport` cannot be tested here; empty: it can.
std::string why_unavailable(TransportKind transport);

/// Whether `transport` cannot be tested here: then the test that runs is skipped, or fails where a
/// device is required, and says why. To be returned on from SetUp().
[[nodiscard]] bool is_left_out(TransportKind transport);

/// What servers of ours keep clients apart by over rdma. An unknown word ends the program with a
/// message.
config::RdmaProtection rdma_protection();

/// Address for a server of ours to listen on.
std::string listen_address(TransportKind transport);

struct ServerAddress {
  std::string host;
  std::uint16_t port = 0;
};
/// The server that runs elsewhere, if there is one.
std::optional<ServerAddress> external_server();

/// Divides a number of steps where a step is slow: under ThreadSanitizer, and on an emulated
/// device.
std::size_t scaled(std::size_t steps, TransportKind transport);

}  // namespace remora::test
