#include "net_namespace.h"

#include <array>
#include <cstdint>
#include <cstring>
#include <linux/netlink.h>
#include <rdma/rdma_netlink.h>
#include <string_view>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "standard_descriptors_taken.h"

namespace remora::verbs::detail {
namespace {

constexpr std::uint16_t kSystemGet = RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_SYS_GET);
constexpr std::size_t kAttributeHeadBytes = sizeof(nlattr);
constexpr std::uint8_t kExclusive = 0;  // 1: all namespaces share all devices

class NetlinkSocket {
 public:
  NetlinkSocket() {
    const StandardDescriptorsTaken taken;
    fd_ = ::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_RDMA);
    // The kernel answers within the call that asks; this limits the wait for a lost answer.
    const timeval second{.tv_sec = 1, .tv_usec = 0};
    if (fd_ >= 0) ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &second, sizeof second);
  }
  ~NetlinkSocket() {
    if (fd_ >= 0) ::close(fd_);
  }
  NetlinkSocket(const NetlinkSocket&) = delete;
  NetlinkSocket& operator=(const NetlinkSocket&) = delete;

  bool ask() const noexcept {
    nlmsghdr request{};
    request.nlmsg_len = NLMSG_LENGTH(0);
    request.nlmsg_type = kSystemGet;
    request.nlmsg_flags = NLM_F_REQUEST;
    return fd_ >= 0 && ::send(fd_, &request, sizeof request, 0) == sizeof request;
  }
  [[nodiscard]] std::size_t receive(char* to, std::size_t capacity_bytes) const noexcept {
    const ssize_t length_bytes = ::recv(fd_, to, capacity_bytes, 0);
    return length_bytes < 0 ? 0 : static_cast<std::size_t>(length_bytes);
  }

 private:
  int fd_ = -1;
};

/// Finds the mode among the attributes of an answer.
bool says_exclusive(std::string_view answer) noexcept {
  nlmsghdr head{};
  if (answer.size() < sizeof head) return false;
  std::memcpy(&head, answer.data(), sizeof head);
  if (head.nlmsg_type != kSystemGet || head.nlmsg_len > answer.size()) return false;
  answer = answer.substr(NLMSG_HDRLEN, head.nlmsg_len - NLMSG_HDRLEN);
  nlattr attribute{};
  while (answer.size() >= sizeof attribute) {
    std::memcpy(&attribute, answer.data(), sizeof attribute);
    if (attribute.nla_len < sizeof attribute || attribute.nla_len > answer.size()) return false;
    if (attribute.nla_type == RDMA_NLDEV_SYS_ATTR_NETNS_MODE &&
        attribute.nla_len > kAttributeHeadBytes)
      return static_cast<std::uint8_t>(answer[kAttributeHeadBytes]) == kExclusive;
    const std::size_t step = NLA_ALIGN(attribute.nla_len);
    if (step > answer.size()) return false;
    answer.remove_prefix(step);
  }
  return false;
}

}  // namespace

bool devices_are_by_namespace() {
  const NetlinkSocket kernel;
  std::array<char, 4096> answer{};
  if (!kernel.ask()) return false;
  return says_exclusive({answer.data(), kernel.receive(answer.data(), answer.size())});
}

Error no_device(const Provider& provider, Operation operation) {
  if (provider.devices_are_by_namespace == nullptr || !provider.devices_are_by_namespace())
    return Error{Code::kNotFound, operation};
  std::array<char, 64> name{};
  const ssize_t length_bytes = ::readlink("/proc/self/ns/net", name.data(), name.size());
  return Error{Code::kNotFound, "RDMA device of this network namespace"}.with_subject(
      length_bytes <= 0 ? std::string_view{"this process's"}
                        : std::string_view{name.data(), static_cast<std::size_t>(length_bytes)});
}

}  // namespace remora::verbs::detail
