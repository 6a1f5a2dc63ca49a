#include "transport/shm/peer_process.h"

#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>

namespace remora::transport {

std::string_view to_string(DeathTold told) noexcept {
  switch (told) {
    case DeathTold::kByPeerDescriptor: return "told by SO_PEERPIDFD";
    case DeathTold::kByProcessId: return "told by pidfd_open(2)";
    case DeathTold::kByHangUpAndKeeping: break;
  }
  return "not told (another PID namespace, and no SO_PEERPIDFD, which needs Linux 6.5): a fence is "
         "busy until limits.session_keep after its hang-up";
}

PeerProcess open_process(int socket, pid_t pid) noexcept {
#ifdef SO_PEERPIDFD
  constexpr int kPeerProcess = SO_PEERPIDFD;
#else
  constexpr int kPeerProcess = 77;  // asm-generic/socket.h, from Linux 6.5 on
#endif
  int descriptor = -1;
  socklen_t length = sizeof descriptor;
  if (::getsockopt(socket, SOL_SOCKET, kPeerProcess, &descriptor, &length) == 0 && descriptor >= 0)
    return {UniqueFd{descriptor}, DeathTold::kByPeerDescriptor};
  // The process id of a process that has exited may belong to another process by now; then the
  // server only takes the client for alive.
  if (pid != 0)
    if (UniqueFd opened{static_cast<int>(::syscall(SYS_pidfd_open, pid, 0U))})
      return {std::move(opened), DeathTold::kByProcessId};
  return {};
}

}  // namespace remora::transport
