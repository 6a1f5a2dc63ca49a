#include "support/resources.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <linux/netlink.h>
#include <optional>
#include <rdma/rdma_netlink.h>
#include <set>
#include <span>
#include <sys/socket.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include <remora/sanitizers.h>

#include "support/eventually.h"

#if REMORA_THREAD_SANITIZER && defined(__clang__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace remora::test {

namespace {

namespace fs = std::filesystem;
using Counts = std::map<std::string, std::int64_t>;

/// "socket:[4711]" -> "socket:[]", so that kinds are counted and not numbers.
std::string kind_of(const std::string& link) {
  std::string kind;
  for (const char c : link)
    if (std::isdigit(static_cast<unsigned char>(c)) == 0) kind.push_back(c);
  return kind;
}

void count_descriptors(Counts& counts) {
  std::error_code failed;
  for (fs::directory_iterator it{"/proc/self/fd", failed}, end; !failed && it != end;
       it.increment(failed)) {
    std::error_code gone;
    const fs::path link = fs::read_symlink(it->path(), gone);
    // The listing's own descriptor.
    if (gone || link.string().find("/proc/") == 0) continue;
    ++counts["descriptor " + kind_of(link.string())];
  }
}

void count_threads(Counts& counts) {
  std::error_code failed;
  counts["threads"] = std::distance(fs::directory_iterator{"/proc/self/task", failed}, {});
}

void count_mappings(Counts& counts) {
  std::ifstream maps{"/proc/self/maps"};
  for (std::string line; std::getline(maps, line);)
    if (line.find("/memfd:") != std::string::npos) ++counts["mapped memfds"];
  std::ifstream status{"/proc/self/status"};
  for (std::string line; std::getline(status, line);)
    if (line.find("VmPin:") == 0) counts["pinned KiB"] = std::atoll(line.c_str() + 6);
}

void count_shared_memory(Counts& counts) {
  std::error_code failed;
  for (fs::directory_iterator it{"/dev/shm", failed}, end; !failed && it != end;
       it.increment(failed))
    if (it->path().filename().string().find("remora") != std::string::npos)
      ++counts["files in /dev/shm"];
}

/// Attributes of one level of a netlink message, each passed to `visit(type, bytes)`.
template <typename Visit>
void for_each_attribute(std::span<const char> bytes, Visit visit) {
  while (bytes.size() >= sizeof(nlattr)) {
    nlattr attribute;
    std::memcpy(&attribute, bytes.data(), sizeof attribute);
    if (attribute.nla_len < sizeof attribute || attribute.nla_len > bytes.size()) return;
    visit(attribute.nla_type & NLA_TYPE_MASK,
          bytes.subspan(sizeof attribute, attribute.nla_len - sizeof attribute));
    bytes = bytes.subspan(std::min<std::size_t>(bytes.size(), NLA_ALIGN(attribute.nla_len)));
  }
}

void count_summary_entry(std::span<const char> entry, Counts& counts) {
  std::string name;
  std::uint64_t current = 0;
  for_each_attribute(entry, [&](int type, std::span<const char> value) {
    if (type == RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_NAME)
      name.assign(value.data(), ::strnlen(value.data(), value.size()));
    if (type == RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_CURR && value.size() >= sizeof current)
      std::memcpy(&current, value.data(), sizeof current);
  });
  if (!name.empty()) counts["device " + name] += static_cast<std::int64_t>(current);
}

template <typename Value>
std::optional<Value> value_of(std::span<const char> bytes) {
  if (bytes.size() < sizeof(Value)) return std::nullopt;
  Value value{};
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

/// Asks the kernel's RDMA netlink for all there is of a kind, of one device or of each, and passes
/// the attributes of each message to `visit(bytes)`.
template <typename Visit>
void ask_devices(int socket, int command, std::optional<std::uint32_t> device, Visit visit) {
  struct {
    nlmsghdr header;
    nlattr attribute;
    std::uint32_t device;
  } request{};
  request.header.nlmsg_len = device ? sizeof request : NLMSG_LENGTH(0);
  request.header.nlmsg_type = static_cast<std::uint16_t>(RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, command));
  request.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  request.attribute = {.nla_len = sizeof(nlattr) + sizeof(std::uint32_t),
                       .nla_type = RDMA_NLDEV_ATTR_DEV_INDEX};
  request.device = device.value_or(0);
  bool more = ::send(socket, &request, request.header.nlmsg_len, 0) > 0;
  alignas(nlmsghdr) std::array<char, 32768> buffer{};
  while (more) {
    const ssize_t got = ::recv(socket, buffer.data(), buffer.size(), 0);
    if (got <= 0) break;
    auto left = static_cast<unsigned>(got);
    for (auto* message = reinterpret_cast<nlmsghdr*>(buffer.data()); NLMSG_OK(message, left);
         message = NLMSG_NEXT(message, left)) {
      more = message->nlmsg_type != NLMSG_DONE && message->nlmsg_type != NLMSG_ERROR;
      if (!more) break;
      const auto* data = static_cast<const char*>(NLMSG_DATA(message));
      visit(std::span{data, message->nlmsg_len - NLMSG_HDRLEN});
    }
  }
}

/// Those of a device's objects of one kind that threads of this process have made. The kernel knows
/// the thread: an object of a thread that has ended belongs to none.
std::int64_t count_own(int socket, std::uint32_t device, int command, int table) {
  const auto is_own = [](std::optional<std::uint32_t> thread) {
    std::error_code failed;
    return thread && fs::exists("/proc/self/task/" + std::to_string(*thread), failed);
  };
  std::int64_t count = 0;
  ask_devices(socket, command, device, [&](std::span<const char> message) {
    for_each_attribute(message, [&](int type, auto entries) {
      if (type != table) return;
      for_each_attribute(entries, [&](int, auto entry) {
        for_each_attribute(entry, [&](int attribute, auto value) {
          if (attribute == RDMA_NLDEV_ATTR_RES_PID && is_own(value_of<std::uint32_t>(value)))
            ++count;
        });
      });
    });
  });
  return count;
}

/// What `rdma resource show` prints, and what of it is this process's, asked by netlink: starting a
/// program is slow in an emulator.
void count_device_objects(Counts& counts) {
  std::error_code failed;
  if (!fs::exists("/sys/class/infiniband", failed)) return;
  const int socket = ::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_RDMA);
  if (socket < 0) return;
  std::vector<std::uint32_t> devices;
  ask_devices(socket, RDMA_NLDEV_CMD_RES_GET, std::nullopt, [&](std::span<const char> message) {
    for_each_attribute(message, [&](int type, auto bytes) {
      if (type == RDMA_NLDEV_ATTR_DEV_INDEX)
        if (const auto index = value_of<std::uint32_t>(bytes)) devices.push_back(*index);
      if (type == RDMA_NLDEV_ATTR_RES_SUMMARY)
        for_each_attribute(bytes, [&](int, auto entry) { count_summary_entry(entry, counts); });
    });
  });
  struct Kind {
    const char* name;
    int command;
    int table;
  };
  constexpr std::array kKinds{
      Kind{"own qp", RDMA_NLDEV_CMD_RES_QP_GET, RDMA_NLDEV_ATTR_RES_QP},
      Kind{"own cq", RDMA_NLDEV_CMD_RES_CQ_GET, RDMA_NLDEV_ATTR_RES_CQ},
      Kind{"own mr", RDMA_NLDEV_CMD_RES_MR_GET, RDMA_NLDEV_ATTR_RES_MR},
      Kind{"own pd", RDMA_NLDEV_CMD_RES_PD_GET, RDMA_NLDEV_ATTR_RES_PD},
      Kind{"own cm_id", RDMA_NLDEV_CMD_RES_CM_ID_GET, RDMA_NLDEV_ATTR_RES_CM_ID}};
  for (const std::uint32_t device : devices)
    for (const Kind& kind : kKinds)
      counts[kind.name] += count_own(socket, device, kind.command, kind.table);
  ::close(socket);
}

}  // namespace

Resources Resources::now() {
#if REMORA_THREAD_SANITIZER && defined(__clang__)
  // Its runtime names functions by another program, which it keeps, with two pipes, from the first
  // suppression on that it has to compare: before what is counted, then.
  static const bool begun = [] {
    std::array<char, 64> name{};
    __sanitizer_symbolize_pc(__builtin_return_address(0), "%f", name.data(), name.size());
    return true;
  }();
  static_cast<void>(begun);
#endif
  Resources found;
  count_descriptors(found.counts_);
  count_threads(found.counts_);
  count_mappings(found.counts_);
  count_shared_memory(found.counts_);
  count_device_objects(found.counts_);
  return found;
}

Resources Resources::settled() {
  Resources found = now();
  for (int same = 0, tries = 0; same < 3 && tries < 250; ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds{10});
    Resources next = now();
    same = next.counts_ == found.counts_ ? same + 1 : 0;
    found = std::move(next);
  }
  return found;
}

std::string Resources::difference(const Resources& later) const {
  std::set<std::string> names;
  for (const auto& [name, count] : counts_) names.insert(name);
  for (const auto& [name, count] : later.counts_) names.insert(name);
  std::string text;
  for (const std::string& name : names) {
    const auto before = counts_.find(name);
    const auto after = later.counts_.find(name);
    const std::int64_t was = before == counts_.end() ? 0 : before->second;
    const std::int64_t is = after == later.counts_.end() ? 0 : after->second;
    // Others' device objects may go meanwhile, and idle ones of our own: what counts is that none
    // is added.
    const bool shared = name.find("device ") == 0 || name.find("own ") == 0;
    if (shared ? is > was : is != was)
      text += name + ": " + std::to_string(was) + " before, " + std::to_string(is) + " now\n";
  }
  return text;
}

testing::AssertionResult back_at(const Resources& baseline, std::chrono::milliseconds timeout) {
  for (Patience patience{timeout};;) {
    const std::string difference = baseline.difference(Resources::now());
    if (difference.empty()) return testing::AssertionSuccess();
    if (patience.over()) return testing::AssertionFailure() << "not given back:\n" << difference;
    std::this_thread::sleep_for(std::chrono::milliseconds{20});
  }
}

}  // namespace remora::test
