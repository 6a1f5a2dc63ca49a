#pragma once

/// Begins to listen over one transport.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <remora/config/server_config.h>
#include <remora/result.h>
#include <remora/verbs/address.h>

#include "transport/listener.h"

namespace remora::transport {

/// Where a server listens: `listen.address` as it is configured, and the addresses it stands for.
struct ListenAddress {
  std::string text = "127.0.0.1";
  /// Addresses of this machine, whose ports do not matter; at least one.
  std::vector<verbs::Address> addresses{verbs::Address::parse("127.0.0.1", 0).value()};
};

/// `port` 0 takes a free one. Clients learn that the server listens at `address`. Creates the
/// folder of the socket only where the environment names none; refuses a folder in which other
/// users could replace files. Errors: kAddressInUse; kAlreadyExists (a file of the socket's name,
/// which is no socket); kNotFound (no such folder); kPermissionDenied (the folder is another
/// user's, or every user may write to it); kSystem.
Result<std::unique_ptr<Listener>> listen_shm(std::uint16_t port, const ListenAddress& address = {});
/// On the first of `address` that a device has. `listen.port` 0 takes a free one. Counts its
/// registrations in `registry`. Errors: kAddressInUse; kNotFound (no device, not the named one, or
/// none that has the address: the subject says which).
Result<std::unique_ptr<Listener>> listen_rdma(const config::ServerConfig& config,
                                              const ListenAddress& address,
                                              const std::shared_ptr<metrics::Registry>& registry);
/// On every address of `address`. `port` 0 takes a free one. Threads of the listener's own serve
/// data, and count in `registry`. Errors: kAddressInUse, kUnreachable (no address of this host),
/// kPermissionDenied (a port below 1024), kUnsupported (no such sockets here), kSystem.
Result<std::unique_ptr<Listener>> listen_tcp(const config::ServerConfig& config,
                                             const ListenAddress& address, std::uint16_t port,
                                             const std::shared_ptr<metrics::Registry>& registry);

}  // namespace remora::transport
