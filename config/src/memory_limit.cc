#include <algorithm>
#include <sstream>
#include <string_view>
#include <vector>

#include <remora/config/memory_limit.h>
#include <remora/config/units.h>
#include <remora/system_file.h>

namespace remora::config {
namespace {

/// Names of one version's files. In version 1 a number near 2^63 means "none".
struct Version {
  const char* limit;
  const char* used;
  const char* inactive_cache;
  const char* active_cache;
};
constexpr Version kOne{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file",
                       "total_active_file"};
constexpr Version kTwo{"memory.max", "memory.current", "inactive_file", "active_file"};
constexpr std::uint64_t kNone = std::uint64_t{1} << 62U;

std::istringstream contents(const std::string& file) {
  return std::istringstream{remora::detail::read_file(file.c_str()).value_or("")};
}

/// Empty for "max", and if there is no such file.
std::optional<std::uint64_t> number_in(const std::string& file) {
  std::uint64_t number = 0;
  std::istringstream stream = contents(file);
  if (!(stream >> number)) return std::nullopt;
  return number;
}

/// Bytes of files that the group has cached; the kernel drops them before it kills a process.
std::uint64_t cached_bytes(const std::string& folder, const Version& version) {
  std::uint64_t sum = 0;
  std::istringstream stream = contents(folder + "/memory.stat");
  std::string key;
  for (std::uint64_t bytes = 0; stream >> key >> bytes;)
    if (key == version.inactive_cache || key == version.active_cache) sum += bytes;
  return sum;
}

/// Reads the group at `root` + `path` and those above it.
void look_up(const std::string& root, std::string path, const Version& version,
             std::optional<MemoryLimit>& least) {
  // A group outside of the view of this process is shown as "/..": the root stands for it.
  if (path.find("/..") != std::string::npos) path = "/";
  while (true) {
    const std::string folder = path == "/" ? root : root + path;
    if (const auto limit = number_in(folder + "/" + version.limit); limit && *limit < kNone) {
      const std::uint64_t used = number_in(folder + "/" + version.used).value_or(0);
      const std::uint64_t cached = std::min(used, cached_bytes(folder, version));
      const MemoryLimit found{folder + "/" + version.limit, *limit, used - cached};
      if (!least || found.left_bytes() < least->left_bytes()) least = found;
    }
    if (path == "/" || path.empty()) return;
    const std::size_t slash = path.rfind('/');
    path = slash == 0 || slash == std::string::npos ? "/" : path.substr(0, slash);
  }
}

bool has_memory(std::string_view controllers) {
  while (!controllers.empty()) {
    const std::size_t comma = controllers.find(',');
    if (controllers.substr(0, comma) == "memory") return true;
    if (comma == std::string_view::npos) return false;
    controllers.remove_prefix(comma + 1);
  }
  return false;
}

}  // namespace

std::optional<MemoryLimit> memory_limit(const CgroupFiles& files) {
  std::optional<MemoryLimit> least;
  std::istringstream groups = contents(files.of_process);
  // Each line: number of the hierarchy, controllers, path. Version 2 has number 0.
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (line.starts_with("0:")) {
      look_up(files.root, path, kTwo, least);
      look_up(files.root + "/unified", path, kTwo, least);  // beside version 1
    } else if (has_memory(controllers)) {
      look_up(files.root + "/memory", path, kOne, least);
    }
  }
  return least;
}

std::uint64_t free_huge_page_bytes(const std::string& meminfo) {
  std::istringstream stream = contents(meminfo);
  std::uint64_t pages = 0;
  std::uint64_t kibibytes = 0;
  for (std::string line; std::getline(stream, line);) {
    std::istringstream words{line};
    std::string key;
    std::uint64_t value = 0;
    if (!(words >> key >> value)) continue;
    if (key == "HugePages_Free:") pages = value;
    if (key == "Hugepagesize:") kibibytes = value;
  }
  return kibibytes * 1024 == kHugePageBytes ? pages * kHugePageBytes : 0;
}

std::uint64_t free_gib_page_bytes(const std::string& folder) {
  std::istringstream stream = contents(folder + "/hugepages-1048576kB/free_hugepages");
  std::uint64_t pages = 0;
  return stream >> pages ? pages * kGibPageBytes : 0;
}

std::optional<std::string> exceeded_memory_limit(const ServerConfig& config,
                                                 const CgroupFiles& files) {
  const std::uint64_t size = config.pool.size_bytes;
  if (config.pool.huge_pages == HugePages::kRequire1GiB)
    return std::nullopt;  // no limit counts them
  if (config.pool.huge_pages != HugePages::kNever && free_huge_page_bytes() >= size)
    return std::nullopt;
  const auto limit = memory_limit(files);
  if (!limit || size <= limit->left_bytes()) return std::nullopt;
  return "pool.size is " + std::to_string(size) +
         " bytes, and the memory limit of this control group (" + limit->file + ") is " +
         std::to_string(limit->limit_bytes) + ", of which " + std::to_string(limit->left_bytes()) +
         " are left: a server in it does not start. Lower pool.size, or raise the limit "
         "(MemoryMax= of a unit, --memory of a container)";
}

}  // namespace remora::config
