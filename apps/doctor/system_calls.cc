#include "doctor/system_calls.h"

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <memory>
#include <netdb.h>
#include <string>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

namespace remora::apps::doctor {
namespace {

ResourceLimit limit_of(int resource) {
  rlimit limit{};
  if (::getrlimit(resource, &limit) != 0) return {};
  const auto value = [](rlim_t raw) {
    return raw == RLIM_INFINITY ? kUnlimited : std::uint64_t{raw};
  };
  return {.soft = value(limit.rlim_cur), .hard = value(limit.rlim_max)};
}

class ProcessCalls final : public SystemCalls {
 public:
  [[nodiscard]] uid_t effective_user() const override { return ::geteuid(); }

  [[nodiscard]] std::optional<FileStatus> status(const std::string& path) const override {
    struct stat found {};
    if (::stat(path.c_str(), &found) != 0) return std::nullopt;
    return FileStatus{.owner = found.st_uid, .group = found.st_gid, .mode = found.st_mode & 07777U};
  }

  [[nodiscard]] int open_error(const std::string& path) const override {
    const int descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (descriptor < 0) return errno;
    ::close(descriptor);
    return 0;
  }

  [[nodiscard]] int connect_error(const std::string& path) const override {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof address.sun_path) return ENAMETOOLONG;
    std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
    const int descriptor = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (descriptor < 0) return errno;
    const int answer =
        ::connect(descriptor, reinterpret_cast<const sockaddr*>(&address), sizeof address);
    const int number = answer == 0 ? 0 : errno;
    ::close(descriptor);
    return number;
  }

  [[nodiscard]] ResourceLimit locked_memory() const override { return limit_of(RLIMIT_MEMLOCK); }
  [[nodiscard]] ResourceLimit open_files() const override { return limit_of(RLIMIT_NOFILE); }

  [[nodiscard]] int bind_error(const std::string& address, std::uint16_t port) const override {
    addrinfo hints{};
    hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    const std::string service = std::to_string(port);
    if (::getaddrinfo(address.c_str(), service.c_str(), &hints, &found) != 0) return EADDRNOTAVAIL;
    const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner{found, &::freeaddrinfo};
    const int descriptor = ::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (descriptor < 0) return errno;
    const int yes = 1;
    // As servers do: lingering earlier connections do not block the port.
    ::setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    const bool listens =
        ::bind(descriptor, found->ai_addr, found->ai_addrlen) == 0 && ::listen(descriptor, 1) == 0;
    const int number = listens ? 0 : errno;
    ::close(descriptor);
    return number;
  }

  [[nodiscard]] int userfaultfd_error() const override {
    const int descriptor =
        static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY));
    if (descriptor < 0) return errno;
    ::close(descriptor);
    return 0;
  }

  [[nodiscard]] std::optional<std::string> environment(const std::string& name) const override {
    const char* const value = std::getenv(name.c_str());
    if (value == nullptr) return std::nullopt;
    return std::string{value};
  }

  [[nodiscard]] std::optional<std::string> firewall_rules() const override {
    constexpr std::size_t kMaxRulesBytes = std::size_t{1} << 20U;
    std::FILE* const pipe = ::popen("nft list ruleset 2>/dev/null", "re");
    if (pipe == nullptr) return std::nullopt;
    std::string text;
    std::array<char, 4096> buffer{};
    for (std::size_t got = 0; (got = std::fread(buffer.data(), 1, buffer.size(), pipe)) != 0;)
      if (text.size() < kMaxRulesBytes) text.append(buffer.data(), got);
    if (::pclose(pipe) != 0) return std::nullopt;
    return text;
  }
};

}  // namespace

const SystemCalls& system_calls() {
  static const ProcessCalls calls;
  return calls;
}

}  // namespace remora::apps::doctor
