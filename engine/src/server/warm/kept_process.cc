#include "server/warm/kept_process.h"

#include <cerrno>
#include <climits>
#include <csignal>
#include <new>
#include <sstream>
#include <string>
#include <sys/stat.h>

#include <remora/system_file.h>

namespace remora::detail {

namespace {

struct ProcessStat {
  char state = '\0';  ///< '\0': there is no such process, or /proc does not show it
  std::uint64_t threads = 0;
  std::uint64_t began = 0;
};

/// Source: proc(5). The name of the program, in parentheses, may contain any character.
ProcessStat stat_of(std::uint64_t process_id) noexcept try {
  constexpr int kFieldsBetween = 16;  // between the state (3) and the number of threads (20)
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
  fields >> found.threads >> skipped >> found.began;
  return fields ? found : ProcessStat{};
} catch (const std::bad_alloc&) {
  return {};
}

/// /proc may not show processes of other users (hidepid, ProtectProc=).
bool is_hidden(std::uint64_t process_id) noexcept {
  return process_id != 0 && process_id <= INT_MAX &&
         (::kill(static_cast<pid_t>(process_id), 0) == 0 || errno == EPERM);
}

}  // namespace

std::uint64_t process_began(std::uint64_t process_id) noexcept { return stat_of(process_id).began; }

std::uint64_t process_namespace() noexcept {
  struct stat status {};
  return ::stat("/proc/self/ns/pid", &status) == 0 ? status.st_ino : 0;
}

ProcessState state_of_process(std::uint64_t process_id, std::uint64_t began) noexcept {
  const ProcessStat found = stat_of(process_id);
  if (found.state == '\0')
    return is_hidden(process_id) ? ProcessState::kRunning : ProcessState::kGone;
  // The main thread alone may have ended. Then the others count as running: their state is not in
  // this file.
  const bool ended = (found.state == 'Z' && found.threads <= 1) || found.state == 'X';
  if (ended || found.began != began) return ProcessState::kGone;
  return found.state == 'T' || found.state == 't' ? ProcessState::kStopped : ProcessState::kRunning;
}

}  // namespace remora::detail
