#include "transport/shm/socket.h"

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>
#include <utility>

namespace remora::transport {

namespace {
constexpr std::size_t kMaxDescriptors = 4;

Error lost(Operation operation, int system_errno) noexcept {
  return Error{Code::kConnectionLost, operation}
      .with_reason(Reason::kPeerGone)
      .with_errno(system_errno);
}
}  // namespace

ShmFolder shm_folder() {
  for (const char* name : {"REMORA_RUNTIME_DIR", "XDG_RUNTIME_DIR"})
    if (const char* value = std::getenv(name); value != nullptr && *value != '\0')
      return {.path = value, .named = true};
  return {.path = "/tmp/remora-" + std::to_string(::geteuid()), .named = false};
}

std::string shm_socket_path(std::uint16_t port) {
  return shm_folder().path + "/remora-" + std::to_string(port) + ".sock";
}

Result<PeerCredentials> peer_credentials(int socket) {
  ucred credentials{};
  socklen_t length = sizeof credentials;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0)
    return Error{Code::kSystem, "getsockopt(SO_PEERCRED)"}.with_errno(errno);
  return PeerCredentials{credentials.pid, credentials.uid};
}

Status send_message(int socket, std::span<const std::byte> bytes,
                    std::span<const UniqueFd> descriptors, Deadline deadline) noexcept {
  if (bytes.size() > kMaxControlMessageBytes || descriptors.size() > kMaxDescriptors)
    return Error{Code::kLimitExceeded, "sendmsg"}.with_limit(bytes.size(), kMaxControlMessageBytes);
  // sendmsg(2) does not write through the vector it is given.
  iovec vector{.iov_base = const_cast<std::byte*>(bytes.data()), .iov_len = bytes.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kMaxDescriptors)> ancillary{};
  msghdr message{};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  if (!descriptors.empty()) {
    message.msg_control = ancillary.data();
    message.msg_controllen = CMSG_SPACE(sizeof(int) * descriptors.size());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int) * descriptors.size());
    for (std::size_t i = 0; i < descriptors.size(); ++i) {
      const int descriptor = descriptors[i].get();
      std::memcpy(CMSG_DATA(header) + i * sizeof(int), &descriptor, sizeof(int));
    }
  }
  while (true) {
    if (::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) return {};
    if (errno == EINTR) continue;
    if (errno == EPIPE || errno == ECONNRESET || errno == ENOTCONN) return lost("sendmsg", errno);
    if (errno != EAGAIN && errno != ENOBUFS)
      return Error{Code::kSystem, "sendmsg"}.with_errno(errno);
    const int left = milliseconds_until(deadline);
    if (left == 0) return Error{Code::kTimedOut, "sendmsg"};
    pollfd event{.fd = socket, .events = POLLOUT, .revents = 0};
    ::poll(&event, 1, left);
  }
}

Result<std::optional<ControlMessage>> receive_message(int socket) noexcept {
  ControlMessage received;
  received.bytes.resize(kMaxControlMessageBytes);
  iovec vector{.iov_base = received.bytes.data(), .iov_len = received.bytes.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kMaxDescriptors)> ancillary{};
  msghdr message{};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  message.msg_control = ancillary.data();
  message.msg_controllen = ancillary.size();
  ssize_t length = 0;
  // A peer that closes with unread messages resets the channel. The kernel reports that once, and
  // before the messages that the peer had sent, which come next.
  bool reset = false;
  do {
    length = ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (length < 0 && (errno == EINTR || (errno == ECONNRESET && !std::exchange(reset, true))));
  if (length < 0) {
    if (errno == EAGAIN) return std::optional<ControlMessage>{};
    if (errno == ECONNRESET || errno == ENOTCONN) return lost("recvmsg", errno);
    return Error{Code::kSystem, "recvmsg"}.with_errno(errno);
  }
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int descriptor = -1;
      std::memcpy(&descriptor, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
      received.descriptors.emplace_back(descriptor);
    }
  }
  if (length == 0) return lost("recvmsg", 0);
  // Descriptors beyond this process's limit are missing, which attach() notices.
  if ((message.msg_flags & MSG_TRUNC) != 0)
    return Error{Code::kProtocol, "recvmsg"}.with_subject("control message too long");
  received.bytes.resize(static_cast<std::size_t>(length));
  return std::optional<ControlMessage>{std::move(received)};
}

}  // namespace remora::transport
