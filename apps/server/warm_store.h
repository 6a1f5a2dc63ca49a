#pragma once

/// The stores of descriptors for pool.warm_restart: the store of the service manager, and that of
/// another supervisor. apps/docs/warm-restart.md has both protocols.

#include <memory>
#include <optional>

#include <remora/engine/descriptor_store.h>
#include <remora/result.h>

namespace remora::apps {

/// The store of a service manager: FDSTORE=1 by sd_notify(3), and the kept descriptors by
/// LISTEN_FDS (sd_listen_fds(3)). Null: there is no NOTIFY_SOCKET, or $FDSTORE says that the
/// service manager keeps nothing.
std::shared_ptr<DescriptorStore> store_of_service_manager();

/// The store of a supervisor at the other end of `socket`, a connected Unix socket that keeps
/// message boundaries (SOCK_SEQPACKET). Takes ownership of the socket. Errors: kInvalidArgument: it
/// is no such socket.
Result<std::shared_ptr<DescriptorStore>> store_of_supervisor(int socket);

/// Removes the descriptors that earlier processes have stored, for a server that has
/// pool.warm_restart off.
void give_up_stored(DescriptorStore& store) noexcept;

}  // namespace remora::apps
