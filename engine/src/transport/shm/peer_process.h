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
  kByProcessId,         ///< pidfd_open(2): if its process id is visible here
  kByHangUpAndKeeping,  ///< not told: grants end limits.session_keep after the hang-up
};
std::string_view to_string(DeathTold told) noexcept;

/// The process at the other end of a socket.
struct PeerProcess {
  UniqueFd exited;  ///< readable when it has exited; empty: not supported
  DeathTold told = DeathTold::kByHangUpAndKeeping;
};

/// `pid`: from SO_PEERCRED; 0 if the client is in a PID namespace that is not visible here.
PeerProcess open_process(int socket, pid_t pid) noexcept;

}  // namespace remora::transport
