#pragma once

/// The functions by which the threads of tcp access the memory of regions. Sessions on several
/// threads, clients over shm and the server's application may touch the same bytes at once: a read
/// that overlaps a write may return any mixture (docs/guarantees.md). ThreadSanitizer ignores these
/// functions (ci/tsan.supp), and checks the rest of the threads' code.

#include <cstddef>
#include <cstring>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <remora/sanitizers.h>

#if REMORA_THREAD_SANITIZER
#define REMORA_KEPT_FUNCTION [[gnu::noinline]]
#else
#define REMORA_KEPT_FUNCTION
#endif

namespace remora::transport::tcp::region_memory {

REMORA_KEPT_FUNCTION inline void copy(std::byte* to, const std::byte* from,
                                      std::size_t length_bytes) noexcept {
  std::memcpy(to, from, length_bytes);
}

REMORA_KEPT_FUNCTION inline void zero(std::byte* at, std::size_t length_bytes) noexcept {
  std::memset(at, 0, length_bytes);
}

/// As recvmsg(2) with MSG_DONTWAIT: `parts` and `count` as in msghdr; at least one vector.
REMORA_KEPT_FUNCTION inline ssize_t receive(int socket, iovec* parts, std::size_t count) noexcept {
  if (count == 1) return ::recv(socket, parts[0].iov_base, parts[0].iov_len, MSG_DONTWAIT);
  msghdr scattered{};
  scattered.msg_iov = parts;
  scattered.msg_iovlen = count;
  return ::recvmsg(socket, &scattered, MSG_DONTWAIT);
}

/// As sendmsg(2) with MSG_DONTWAIT and MSG_NOSIGNAL.
REMORA_KEPT_FUNCTION inline ssize_t send(int socket, iovec* parts, std::size_t count) noexcept {
  if (count == 1)
    return ::send(socket, parts[0].iov_base, parts[0].iov_len, MSG_NOSIGNAL | MSG_DONTWAIT);
  msghdr gathered{};
  gathered.msg_iov = parts;
  gathered.msg_iovlen = count;
  return ::sendmsg(socket, &gathered, MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace remora::transport::tcp::region_memory

#undef REMORA_KEPT_FUNCTION
