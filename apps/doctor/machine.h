#pragma once

/// What the checks see of a machine: files below a root, and a few system calls. Unit tests have
/// trees and answers of their own.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <utility>
#include <vector>

namespace remora::apps::doctor {

/// Files below a root; paths are absolute ("/proc/self/status"). Nothing is ever written.
/// Thread safety: const.
class FileView {
 public:
  explicit FileView(std::string root = {}) : root_{std::move(root)} {}

  /// The text without the newlines at its end; nothing where it cannot be read. Blocks.
  [[nodiscard]] std::optional<std::string> read(const std::string& path) const;
  /// read(), or an empty text.
  [[nodiscard]] std::string text(const std::string& path) const;
  /// Also where a symbolic link stands that leads nowhere.
  [[nodiscard]] bool exists(const std::string& path) const;
  /// Names in a folder, sorted; none where it is not there or may not be read.
  [[nodiscard]] std::vector<std::string> list(const std::string& path) const;
  /// The last part of a symbolic link's target; empty where there is no link.
  [[nodiscard]] std::string link_name(const std::string& path) const;
  /// All of its target, as it is written there.
  [[nodiscard]] std::string link(const std::string& path) const;

 private:
  std::string root_;  ///< put before each path
};

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
  /// errno of opening it for reading and writing; 0: it can be opened. Closes it at once.
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
  /// `nft list ruleset`; nothing where it fails. Runs a program.
  [[nodiscard]] virtual std::optional<std::string> firewall_rules() const = 0;
};

/// Those of this process.
[[nodiscard]] const SystemCalls& system_calls();

/// A machine to check. Borrows `calls`.
struct Machine {
  FileView files{};
  const SystemCalls& calls;

  [[nodiscard]] bool is_root() const { return calls.effective_user() == 0; }
};

/// The value behind "NAME:" in a file with a field on each line, without blanks around it; empty
/// where it is not there.
[[nodiscard]] std::string field(const FileView& files, const std::string& path,
                                std::string_view name);
/// A field of /proc/self/status.
[[nodiscard]] std::string status_field(const FileView& files, std::string_view name);
/// Whether a set of /proc/self/status ("CapEff", "CapBnd") has a capability, by its number.
[[nodiscard]] bool has_capability(const FileView& files, std::string_view set, unsigned capability);
/// A field of /proc/meminfo that is a number of KiB, in bytes; nothing where it is not there.
[[nodiscard]] std::optional<std::uint64_t> meminfo_bytes(const FileView& files,
                                                         std::string_view name);

/// Whether the list of a kernel file ("0-3,8") has `number`.
[[nodiscard]] bool list_has(std::string_view list, unsigned number);
/// Whether two such lists have a number in common.
[[nodiscard]] bool lists_meet(std::string_view a, std::string_view b);

/// The decimal number at the start of `text`; nothing where there is none.
[[nodiscard]] std::optional<std::uint64_t> leading_number(std::string_view text);
/// "8MiB", or "unlimited".
[[nodiscard]] std::string limit_text(std::uint64_t bytes);

}  // namespace remora::apps::doctor
