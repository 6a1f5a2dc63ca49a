#pragma once

/// Functions that begin to listen over one transport.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <remora/config/server_config.h>
#include <remora/result.h>
#include <remora/verbs/address.h>

#include "transport/listener.h"

namespace remora::transport {

/// The addresses on which a server listens: `listen.address` as it is configured, and the addresses
/// that it resolves to.
struct ListenAddress {
  std::string text = "127.0.0.1";
  /// Addresses of this machine, whose ports do not matter; at least one.
  std::vector<verbs::Address> addresses{verbs::Address::parse("127.0.0.1", 0).value()};
};

/// `port` 0 takes a free port. Clients learn that the server listens at `address`. Creates the
/// folder of the socket only if the environment names none; refuses a folder in which other users
/// could replace files. Errors: kAddressInUse; kAlreadyExists (a file that is no socket has the
/// socket's name); kNotFound (no such folder); kPermissionDenied (the folder is another user's, or
/// every user may write to it); kSystem.
Result<std::unique_ptr<Listener>> listen_shm(std::uint16_t port, const ListenAddress& address = {});
/// Listens on the first address of `address` that a device has. `listen.port` 0 takes a free port.
/// Counts its registrations in `registry`. Errors: kAddressInUse; kNotFound (there is no device,
/// the named device is missing, or no device has the address: the subject says which).
Result<std::unique_ptr<Listener>> listen_rdma(const config::ServerConfig& config,
                                              const ListenAddress& address,
                                              const std::shared_ptr<metrics::Registry>& registry);
/// Listens on every address of `address`. `port` 0 takes a free port. The listener's own threads
/// serve data, and count in `registry`. Errors: kAddressInUse, kUnreachable (no address of this
/// host), kPermissionDenied (a port below 1024), kUnsupported (the kernel has no such sockets),
/// kSystem.
Result<std::unique_ptr<Listener>> listen_tcp(const config::ServerConfig& config,
                                             const ListenAddress& address, std::uint16_t port,
                                             const std::shared_ptr<metrics::Registry>& registry);

}  // namespace remora::transport
