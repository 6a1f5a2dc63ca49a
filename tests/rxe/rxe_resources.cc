// Source: linux/rdma_netlink.h (RDMA_NLDEV_CMD_RES_GET), rdma-resource(8).
#include <array>
#include <cstring>
#include <functional>
#include <linux/netlink.h>
#include <rdma/rdma_netlink.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rxe_fixture.h"

namespace remora::test {
namespace {

using Visit = std::function<void(int type, std::span<const std::byte> value)>;

void for_each_attribute(std::span<const std::byte> bytes, const Visit& visit) {
  while (bytes.size() >= sizeof(nlattr)) {
    nlattr header{};
    std::memcpy(&header, bytes.data(), sizeof(header));
    if (header.nla_len < sizeof(header) || header.nla_len > bytes.size()) return;
    visit(header.nla_type & NLA_TYPE_MASK,
          bytes.subspan(sizeof(header), header.nla_len - sizeof(header)));
    bytes = bytes.subspan(std::min<std::size_t>(bytes.size(), NLA_ALIGN(header.nla_len)));
  }
}

std::string text_of(std::span<const std::byte> value) {
  return {reinterpret_cast<const char*>(value.data()),
          ::strnlen(reinterpret_cast<const char*>(value.data()), value.size())};
}

void read_device(std::span<const std::byte> message, std::string_view wanted,
                 std::map<std::string, std::int64_t>& counts) {
  std::string name;
  std::map<std::string, std::int64_t> found;
  for_each_attribute(message, [&](int type, std::span<const std::byte> value) {
    if (type == RDMA_NLDEV_ATTR_DEV_NAME) name = text_of(value);
    if (type != RDMA_NLDEV_ATTR_RES_SUMMARY) return;
    for_each_attribute(value, [&](int, std::span<const std::byte> entry) {
      std::string kind;
      std::uint64_t count = 0;
      for_each_attribute(entry, [&](int field, std::span<const std::byte> bytes) {
        if (field == RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_NAME) kind = text_of(bytes);
        if (field == RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_CURR && bytes.size() == sizeof(count))
          std::memcpy(&count, bytes.data(), sizeof(count));
      });
      found[kind] = static_cast<std::int64_t>(count);
    });
  });
  if (name == wanted) counts = found;
}

}  // namespace

std::map<std::string, std::int64_t> device_resources(std::string_view device) {
  std::map<std::string, std::int64_t> counts;
  const int fd = ::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_RDMA);
  if (fd < 0) return counts;
  nlmsghdr request{};
  request.nlmsg_len = sizeof(request);
  request.nlmsg_type = RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_RES_GET);
  request.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  bool more = ::send(fd, &request, sizeof(request), 0) == static_cast<ssize_t>(sizeof(request));
  alignas(nlmsghdr) std::array<std::byte, 32768> buffer{};
  while (more) {
    const ssize_t got = ::recv(fd, buffer.data(), buffer.size(), 0);
    more = got > 0;
    std::span<const std::byte> bytes{buffer.data(), more ? static_cast<std::size_t>(got) : 0};
    while (bytes.size() >= sizeof(nlmsghdr)) {
      nlmsghdr header{};
      std::memcpy(&header, bytes.data(), sizeof(header));
      if (header.nlmsg_len < sizeof(header) || header.nlmsg_len > bytes.size()) break;
      if (header.nlmsg_type == NLMSG_DONE || header.nlmsg_type == NLMSG_ERROR) {
        more = false;
        break;
      }
      read_device(bytes.subspan(sizeof(header), header.nlmsg_len - sizeof(header)), device, counts);
      bytes = bytes.subspan(std::min<std::size_t>(bytes.size(), NLMSG_ALIGN(header.nlmsg_len)));
    }
  }
  ::close(fd);
  return counts;
}

}  // namespace remora::test
