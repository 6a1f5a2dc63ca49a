#pragma once

/// What the kernel says of mappings of this process. Source: proc_pid_smaps(5).

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace remora::test {

struct MappingFlags {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  std::string name{};
  std::string flags{};  ///< two letters each, with spaces around them
  [[nodiscard]] bool has(const char* flag) const {
    return flags.find(" " + std::string{flag} + " ") != std::string::npos;
  }
};

inline std::vector<MappingFlags> mapping_flags() {
  std::vector<MappingFlags> found;
  std::ifstream smaps{"/proc/self/smaps"};
  for (std::string line; std::getline(smaps, line);) {
    MappingFlags next;
    int name_at = 0;
    constexpr std::string_view kFlags = "VmFlags:";
    if (line.starts_with(kFlags) && !found.empty())
      found.back().flags = line.substr(kFlags.size()) + " ";
    else if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " %*s %*s %*s %*s %n", &next.begin,
                         &next.end, &name_at) == 2) {
      if (name_at > 0) next.name = line.substr(static_cast<std::size_t>(name_at));
      found.push_back(next);
    }
  }
  return found;
}

/// Whether a core dump of this process leaves out what is at `address`.
inline bool is_left_out_of_core_dumps(const void* address) {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  for (const MappingFlags& mapping : mapping_flags())
    if (mapping.begin <= at && at < mapping.end) return mapping.has("dd");
  return false;
}

}  // namespace remora::test
