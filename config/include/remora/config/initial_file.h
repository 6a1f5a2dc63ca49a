#pragma once

/// A first file for the server of one machine: every key with its meaning.
///
/// Thread safety: initial_file() is a pure function; this_machine() reads /proc and /sys.

#include <cstdint>
#include <string>
#include <vector>

namespace remora::config {

/// The properties of a machine on which the file depends.
struct Machine {
  std::string name{};  ///< gethostname(2)
  /// Memory that a new process may use: that of the machine, limited by the control groups of this
  /// process.
  std::uint64_t available_bytes = 0;
  /// Reserved 2 MiB pages that are free.
  std::uint64_t free_huge_page_bytes = 0;
  std::vector<std::string> rdma_devices{};  ///< `mlx5_0`, sorted
};

/// The properties of this machine. A value that cannot be read is 0 or empty.
[[nodiscard]] Machine this_machine();

/// The decisions of the user.
struct InitialChoices {
  /// If other hosts can reach the address, the file makes clients prove keys, with one client whose
  /// key file is kInitialKeyFile.
  std::string listen_address = "127.0.0.1";
  /// 0: a quarter of `Machine::available_bytes`, at least 64 MiB.
  std::uint64_t pool_bytes = 0;
};

/// The file of the key of the one client in initial_file(), in the folder of the file.
inline constexpr const char* kInitialKeyFile = "admin.key";

/// The file: keys that are set are written, each other key is a comment with its default. A map or
/// list without a set key is a comment as a whole; without the `# ` in front of its lines it is
/// part of the file.
[[nodiscard]] std::string initial_file(const Machine& machine, const InitialChoices& choices);

}  // namespace remora::config
