#pragma once

/// Identifies the server that answers at a socket: the server writes its identity to its status
/// page, and the client compares it with the host of its URI. The socket's name contains only the
/// port, and another server may use the port on another address of this host, or in another network
/// namespace.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <remora/engine/uri.h>
#include <remora/result.h>
#include <remora/verbs/address.h>

#include "base/clock.h"

namespace remora::transport {

/// An address of `listen.address`, on the status page. In the host's byte order, except `bytes`.
struct ShmAddress {
  std::uint16_t family = 0;  ///< 4 or 6
  std::uint16_t zero = 0;
  std::uint32_t scope = 0;  ///< index of the interface; 0: none
  std::array<std::uint8_t, 16> bytes{};
};

/// The server's identity on the status page, from byte 8 on. A server of an older version leaves
/// these bytes zero.
///
/// | bytes | what |
/// |---|---|
/// | 0 … 3 | version of this table: 1; 0: no identity |
/// | 4 … 5 | port |
/// | 6 … 7 | count of addresses, at most 64 |
/// | 8 … 15, 16 … 23 | device and inode of the server's network namespace; 0: not known |
/// | 24 … 279 | `listen.address` as configured, filled up with zeros |
/// | 280 … | its addresses, 24 bytes each: family (4 or 6), zero, scope, address |
struct ShmIdentity {
  static constexpr std::uint32_t kVersion = 1;
  static constexpr std::size_t kMaxAddresses = 64;

  std::uint32_t version = 0;
  std::uint16_t port = 0;
  std::uint16_t address_count = 0;
  std::uint64_t network_device = 0;
  std::uint64_t network_inode = 0;
  std::array<char, 256> listen_address{};
  std::array<ShmAddress, kMaxAddresses> addresses{};
};
static_assert(sizeof(ShmAddress) == 24);
static_assert(sizeof(ShmIdentity) == 280 + 64 * 24);

/// The identity of a server of this process. `addresses`: those that `listen_address` resolves to;
/// if it is empty, clients compare the text.
ShmIdentity make_identity(std::string_view listen_address, std::uint16_t port,
                          std::span<const verbs::Address> addresses);

/// All addresses that `host` resolves to; "localhost" needs no lookup. **Blocks** while a name is
/// resolved, at most until `deadline`. Errors: those of verbs::Address::resolve_all().
Result<std::vector<verbs::Address>> addresses_of(std::string_view host, Deadline deadline);

/// Whether one of them is an address of this machine, in this network namespace.
bool is_this_host(const std::vector<verbs::Address>& addresses);

/// Whether the server whose status page at the socket `path` has `told` listens at the URI's host
/// and port. `addresses`: those of the host. Every field of `told` is checked.
/// Errors: kConnectionRefused, naming both; kProtocol.
Status check_identity(const ShmIdentity& told, const Uri& uri,
                      const std::vector<verbs::Address>& addresses, const std::string& path);

}  // namespace remora::transport
