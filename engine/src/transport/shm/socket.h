#pragma once

/// The Unix socket under the shm transport: its path, the process at its other end, and messages
/// with descriptors over it.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <sys/types.h>

#include <remora/result.h>

#include "base/clock.h"
#include "base/unique_fd.h"
#include "transport/control_message.h"
#include "transport/shm/identity.h"

namespace remora::transport {

/// Where sockets are: $REMORA_RUNTIME_DIR, else $XDG_RUNTIME_DIR, else /tmp/remora-<uid>.
struct ShmFolder {
  std::string path;
  bool named;  ///< the environment names it, so the server does not create it
};
[[nodiscard]] ShmFolder shm_folder();

/// `<folder>/remora-<port>.sock`. Server and client derive the same path when they run as the same
/// user with the same environment.
[[nodiscard]] std::string shm_socket_path(std::uint16_t port);

/// First bytes of every connection, server to client, with the server's status page as descriptor:
///
/// | bytes | what |
/// |---|---|
/// | 0 … 3 | "RSHM" |
/// | 4 | version of this preface: 1 |
/// | 5 … 7 | zero |
struct ShmPreface {
  char magic[4] = {'R', 'S', 'H', 'M'};
  std::uint8_t version = 1;
  std::uint8_t zero[3] = {};
};
static_assert(sizeof(ShmPreface) == 8);

/// A page that all sessions of one server share: by it clients notice that the server has stopped
/// while their mappings, which the server cannot revoke, still work.
struct ShmStatusPage {
  enum State : std::uint32_t { kServing = 1, kStopped = 2 };
  std::uint32_t state = kServing;
  std::uint32_t zero = 0;
  ShmIdentity identity{};  ///< written before the first client connects
};
inline constexpr std::size_t kShmStatusPageBytes = 4096;
static_assert(offsetof(ShmStatusPage, identity) == 8);
static_assert(sizeof(ShmStatusPage) <= kShmStatusPageBytes);

/// The credentials of the process at the other end. Errors: kSystem.
struct PeerCredentials {
  pid_t pid;
  uid_t uid;
};
Result<PeerCredentials> peer_credentials(int socket);

/// Sends one message, waiting for room until `deadline`. Errors: kTimedOut, kConnectionLost,
/// kSystem.
Status send_message(int socket, std::span<const std::byte> bytes,
                    std::span<const UniqueFd> descriptors, Deadline deadline) noexcept;
/// The next message; empty: none has arrived. Never blocks. Errors: kConnectionLost when the peer
/// disconnected, kProtocol for a message that is too long.
Result<std::optional<ControlMessage>> receive_message(int socket) noexcept;

}  // namespace remora::transport
