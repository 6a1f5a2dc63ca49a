#pragma once

/// The process of an shm client, as its server sees it.

#include <cstdint>
#include <string_view>
#include <sys/types.h>

#include "base/unique_fd.h"

namespace remora::transport {

/// How the server learns that a client has died.
enum class DeathTold : std::uint8_t {
  kByPeerDescriptor,    ///< SO_PEERPIDFD: in every PID namespace
  kByProcessId,         ///< pidfd_open(2): where the client's number is seen from here
  kByHangUpAndKeeping,  ///< not at all: the grants go limits.session_keep after the hang-up
};
std::string_view to_string(DeathTold told) noexcept;

/// The process at the other end of a socket.
struct PeerProcess {
  UniqueFd exited;  ///< readable when it has exited; none: the kernel does not tell
  DeathTold told = DeathTold::kByHangUpAndKeeping;
};

/// `pid`: of SO_PEERCRED; 0 where it is in a PID namespace that is not seen from here.
PeerProcess open_process(int socket, pid_t pid) noexcept;

}  // namespace remora::transport
