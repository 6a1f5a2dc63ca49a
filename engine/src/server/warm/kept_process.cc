#include "server/warm/kept_process.h"

#include <new>
#include <sstream>
#include <string>
#include <sys/stat.h>

#include <remora/system_file.h>

namespace remora::detail {

namespace {

struct ProcessStat {
  char state = '\0';  ///< '\0': there is no such process, or /proc does not show it
  std::uint64_t began = 0;
};

/// Source: proc(5). The name of the program, in parentheses, may contain any character.
ProcessStat stat_of(std::uint64_t process_id) noexcept try {
  constexpr int kFieldsBetween = 18;  // between the state (3) and the start time (22)
  if (process_id == 0) return {};
  const std::string text =
      read_file(("/proc/" + std::to_string(process_id) + "/stat").c_str()).value_or("");
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return {};
  std::istringstream fields{text.substr(name_end + 1)};
  ProcessStat found;
  fields >> found.state;
  std::string skipped;
  for (int i = 0; i < kFieldsBetween; ++i) fields >> skipped;
  fields >> found.began;
  return fields ? found : ProcessStat{};
} catch (const std::bad_alloc&) {
  return {};
}

}  // namespace

std::uint64_t process_began(std::uint64_t process_id) noexcept { return stat_of(process_id).began; }

std::uint64_t process_namespace() noexcept {
  struct stat status {};
  return ::stat("/proc/self/ns/pid", &status) == 0 ? status.st_ino : 0;
}

ProcessState state_of_process(std::uint64_t process_id, std::uint64_t began) noexcept {
  const ProcessStat found = stat_of(process_id);
  if (found.state == '\0' || found.state == 'Z' || found.state == 'X' || found.began != began)
    return ProcessState::kGone;
  return found.state == 'T' || found.state == 't' ? ProcessState::kStopped : ProcessState::kRunning;
}

}  // namespace remora::detail
