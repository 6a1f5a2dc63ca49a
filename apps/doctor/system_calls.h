#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <sys/types.h>

namespace remora::apps::doctor {

struct FileStatus {
  uid_t owner = 0;
  gid_t group = 0;
  mode_t mode = 0;  ///< permission bits alone
};

inline constexpr std::uint64_t kUnlimited = UINT64_MAX;

struct ResourceLimit {
  std::uint64_t soft = kUnlimited;
  std::uint64_t hard = kUnlimited;
};

/// System calls of the checks. None changes the machine.
class SystemCalls {
 public:
  virtual ~SystemCalls() = default;

  [[nodiscard]] virtual uid_t effective_user() const = 0;
  [[nodiscard]] virtual std::optional<FileStatus> status(const std::string& path) const = 0;
  /// errno of opening the path for reading and writing; 0: it can be opened. Closes it at once.
  [[nodiscard]] virtual int open_error(const std::string& path) const = 0;
  /// errno of connecting to a Unix socket of messages; 0: a process listens.
  [[nodiscard]] virtual int connect_error(const std::string& path) const = 0;
  [[nodiscard]] virtual ResourceLimit locked_memory() const = 0;
  [[nodiscard]] virtual ResourceLimit open_files() const = 0;
  /// errno of listening on a TCP port of a numeric address or a host name; 0: it is free.
  [[nodiscard]] virtual int bind_error(const std::string& address, std::uint16_t port) const = 0;
  /// errno of userfaultfd(2) for user-mode faults; 0: it works.
  [[nodiscard]] virtual int userfaultfd_error() const = 0;
  [[nodiscard]] virtual std::optional<std::string> environment(const std::string& name) const = 0;
  /// `nft list ruleset`; empty: it failed. Runs a program.
  [[nodiscard]] virtual std::optional<std::string> firewall_rules() const = 0;
};

/// The system calls of this process.
[[nodiscard]] const SystemCalls& system_calls();

}  // namespace remora::apps::doctor
