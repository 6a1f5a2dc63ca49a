#include "server/warm_store.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <set>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "server/environment.h"
#include "server/log.h"
#include "server/service_manager.h"

namespace remora::apps {
namespace {

constexpr std::chrono::seconds kStorePatience{5};
/// FileDescriptorStoreMax= of systemd/remora-server.service.in, for a service manager that does not
/// report its own limit ($FDSTORE, from systemd 254 on).
constexpr std::uint64_t kMaxOfUnit = 4200;
/// Source: sd_listen_fds(3).
constexpr int kFirstListenDescriptor = 3;

std::string store_text(std::string_view name) {
  // Older service managers do not know FDPOLL, and ignore it. A memfd has no hang-up to poll for.
  return "FDSTORE=1\nFDNAME=" + std::string{name} + "\nFDPOLL=0";
}
std::string remove_text(std::string_view name) {
  return "FDSTOREREMOVE=1\nFDNAME=" + std::string{name};
}

/// Counts the stored descriptors: the service manager drops those beyond `max` without an error.
class ServiceManagerStore final : public DescriptorStore {
 public:
  explicit ServiceManagerStore(std::uint64_t max) : max_{max} {}

  Result<std::vector<StoredDescriptor>> take() override {
    std::vector<StoredDescriptor> taken;
    const auto process = number_in_environment("LISTEN_PID");
    const auto count = number_in_environment("LISTEN_FDS");
    if (!process || !count || *process != static_cast<std::uint64_t>(::getpid())) return taken;
    const char* const names = std::getenv("LISTEN_FDNAMES");
    std::string_view rest{names == nullptr ? "" : names};
    for (std::uint64_t i = 0; i < *count; ++i) {
      const std::string_view name = rest.substr(0, rest.find(':'));
      rest.remove_prefix(std::min(rest.size(), name.size() + 1));
      const int fd = kFirstListenDescriptor + static_cast<int>(i);
      if (::fcntl(fd, F_SETFD, FD_CLOEXEC) != 0)
        return Error{Code::kSystem, "descriptors of LISTEN_FDS"}.with_errno(errno);
      names_.emplace(name);
      taken.push_back({.name = std::string{name}, .fd = fd});
    }
    for (const char* const variable : {"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"})
      ::unsetenv(variable);
    return taken;
  }

  Status store(std::string_view name, int fd) override {
    if (names_.size() >= max_)
      return Error{Code::kLimitExceeded, "descriptors that the service manager keeps"}
          .with_subject("FileDescriptorStoreMax=")
          .with_limit(names_.size() + 1, max_);
    if (auto sent = send_to_service_manager(store_text(name), fd, kStorePatience); !sent)
      return sent;
    names_.emplace(name);
    return {};
  }

  void remove(std::string_view name) noexcept override {
    const Status sent = send_to_service_manager(remove_text(name), -1, kStorePatience);
    if (!sent)
      log_warn("warm.descriptor_kept",
               fmt::format("the service manager keeps {} longer: {}", name, sent.error().message()),
               {{"name", name}, {"reason", sent.error().message()}});
    names_.erase(std::string{name});
  }

 private:
  const std::uint64_t max_;
  std::set<std::string> names_;
};

/// A message of a supervisor, and the descriptor that came with it, or -1.
struct Received {
  std::string text;
  int fd = -1;
};

class SupervisorStore final : public DescriptorStore {
 public:
  explicit SupervisorStore(int socket) : socket_{socket} {}
  ~SupervisorStore() override { ::close(socket_); }
  SupervisorStore(const SupervisorStore&) = delete;
  SupervisorStore& operator=(const SupervisorStore&) = delete;

  Result<std::vector<StoredDescriptor>> take() override {
    constexpr std::string_view kName = "FDNAME=";
    constexpr std::string_view kEnd = "FDEND=1";
    const Error wrong{Code::kProtocol, "descriptors of --warm-fd"};
    std::vector<StoredDescriptor> taken;
    const auto give_up = [&taken](const Error& error) {
      for (const StoredDescriptor& each : taken) ::close(each.fd);
      return error;
    };
    while (true) {
      auto message = receive();
      if (!message) return give_up(message.error());
      if (message->text == kEnd) return taken;
      if (!message->text.starts_with(kName) || message->fd < 0) {
        if (message->fd >= 0) ::close(message->fd);
        return give_up(wrong.with_subject("a message that is not FDNAME=NAME with a descriptor"));
      }
      taken.push_back({.name = message->text.substr(kName.size()), .fd = message->fd});
    }
  }

  Status store(std::string_view name, int fd) override {
    return send_with_descriptor(socket_, store_text(name), fd, kStorePatience);
  }

  void remove(std::string_view name) noexcept override {
    const Status sent = send_with_descriptor(socket_, remove_text(name), -1, kStorePatience);
    if (!sent)
      log_warn("warm.descriptor_kept",
               fmt::format("the supervisor keeps {} longer: {}", name, sent.error().message()),
               {{"name", name}, {"reason", sent.error().message()}});
  }

 private:
  Result<Received> receive() const {
    constexpr std::size_t kMaxMessageBytes = 1024;
    pollfd waited{.fd = socket_, .events = POLLIN, .revents = 0};
    const int ready =
        ::poll(&waited, 1,
               static_cast<int>(
                   std::chrono::duration_cast<std::chrono::milliseconds>(kStorePatience).count()));
    if (ready < 0 && errno == EINTR) return receive();
    if (ready < 0) return Error{Code::kSystem, "poll(--warm-fd)"}.with_errno(errno);
    if (ready == 0) return Error{Code::kTimedOut, "descriptors of --warm-fd (no FDEND=1)"};
    std::array<char, kMaxMessageBytes> bytes{};
    iovec part{.iov_base = bytes.data(), .iov_len = bytes.size()};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t length = ::recvmsg(socket_, &message, MSG_CMSG_CLOEXEC);
    if (length < 0) return Error{Code::kSystem, "recvmsg(--warm-fd)"}.with_errno(errno);
    if (length == 0) return Error{Code::kProtocol, "--warm-fd: the supervisor has hung up"};
    Received received{.text = {bytes.data(), static_cast<std::size_t>(length)}};
    const cmsghdr* const header = CMSG_FIRSTHDR(&message);
    if (header != nullptr && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS &&
        header->cmsg_len == CMSG_LEN(sizeof received.fd))
      std::memcpy(&received.fd, CMSG_DATA(header), sizeof received.fd);
    return received;
  }

  const int socket_;
};

}  // namespace

std::shared_ptr<DescriptorStore> store_of_service_manager() {
  const char* const socket = std::getenv("NOTIFY_SOCKET");
  const auto max = number_in_environment("FDSTORE");
  if (socket == nullptr || *socket == '\0' || max == std::optional<std::uint64_t>{0})
    return nullptr;
  return std::make_shared<ServiceManagerStore>(max.value_or(kMaxOfUnit));
}

Result<std::shared_ptr<DescriptorStore>> store_of_supervisor(int socket) {
  int type = 0;
  int domain = 0;
  socklen_t length = sizeof type;
  if (socket < 3 || ::getsockopt(socket, SOL_SOCKET, SO_TYPE, &type, &length) != 0 ||
      ::getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &domain, &length) != 0 ||
      type != SOCK_SEQPACKET || domain != AF_UNIX)
    return Error{Code::kInvalidArgument, "--warm-fd"}.with_subject(
        "descriptor " + std::to_string(socket) + " is no Unix socket of type SOCK_SEQPACKET");
  (void)::fcntl(socket, F_SETFD, FD_CLOEXEC);
  return std::shared_ptr<DescriptorStore>{std::make_shared<SupervisorStore>(socket)};
}

void give_up_stored(DescriptorStore& store) noexcept try {
  const auto taken = store.take();
  if (!taken)
    return log_warn("warm.not_received", taken.error().message(),
                    {{"reason", taken.error().message()}});
  for (const StoredDescriptor& each : *taken) {
    ::close(each.fd);
    store.remove(each.name);
  }
  if (!taken->empty())
    log_warn("warm.given_up",
             "pool.warm_restart is off: the memory that an earlier process has left is given up");
} catch (const std::exception& exception) {
  log_warn("warm.not_received",
           fmt::format("descriptors of an earlier process: {}", exception.what()),
           {{"reason", exception.what()}});
}

}  // namespace remora::apps
