#pragma once

/// The limit on memory that the control groups of this process set: beyond it the kernel kills the
/// process, and reports that only in its own log.

#include <cstdint>
#include <optional>
#include <string>

#include <remora/config/server_config.h>

namespace remora::config {

/// The places where the kernel shows control groups; tests use other places.
struct CgroupFiles {
  std::string of_process = "/proc/self/cgroup";
  std::string root = "/sys/fs/cgroup";
};

/// The limit that leaves the least memory, of the process's own control group or of a group above
/// it.
struct MemoryLimit {
  std::string file{};             ///< the file of the limit: `memory.max`, or version 1's
  std::uint64_t limit_bytes = 0;  ///< the most that the group's processes may use together
  std::uint64_t used_bytes = 0;   ///< without cached file pages that the kernel can drop

  /// 0 if more than the limit is used.
  [[nodiscard]] std::uint64_t left_bytes() const noexcept {
    return limit_bytes > used_bytes ? limit_bytes - used_bytes : 0;
  }
};

/// For versions 1 and 2; empty: no limit. A container may see its own group as the root of the
/// tree. Source: cgroups(7), Documentation/admin-guide/cgroup-v2.rst.
[[nodiscard]] std::optional<MemoryLimit> memory_limit(const CgroupFiles& files = {});

/// Set if the pool is larger than the memory that the limit leaves: a server would not start,
/// unless it runs in another control group or has its pool in reserved huge pages, which no memory
/// limit counts.
[[nodiscard]] std::optional<std::string> exceeded_memory_limit(const ServerConfig& config,
                                                               const CgroupFiles& files = {});

/// The bytes of reserved 2 MiB pages that are free, as the machine reports.
[[nodiscard]] std::uint64_t free_huge_page_bytes(const std::string& meminfo = "/proc/meminfo");
/// The same for 1 GiB pages; `folder` has one folder for each size. Source:
/// Documentation/admin-guide/mm/hugetlbpage.rst.
[[nodiscard]] std::uint64_t free_gib_page_bytes(
    const std::string& folder = "/sys/kernel/mm/hugepages");

}  // namespace remora::config
