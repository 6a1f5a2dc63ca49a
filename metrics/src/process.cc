#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <dirent.h>
#include <functional>
#include <limits>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <remora/metrics/process.h>
#include <remora/system_file.h>

namespace remora::metrics {
namespace {

constexpr double kKibibyte = 1024;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// A whole number; the application's locale does not matter.
std::optional<double> number(std::string_view text) {
  std::uint64_t value = 0;
  const char* const end = text.data() + text.size();
  if (std::from_chars(text.data(), end, value).ec != std::errc{}) return std::nullopt;
  return static_cast<double>(value);
}

// Field `wanted` of /proc/self/stat, counted from 1 as proc(5) does; from the third one on.
std::optional<double> stat_field(int wanted) {
  const auto line = remora::detail::read_file("/proc/self/stat");
  if (!line) return std::nullopt;
  const std::size_t name_end = line->rfind(')');  // the name may hold spaces
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields{line->substr(name_end + 1)};
  std::string field;
  for (int i = 3; i <= wanted; ++i)
    if (!(fields >> field)) return std::nullopt;
  return number(field);
}

double resident_bytes() {
  const auto pages = stat_field(24);
  return pages ? *pages * static_cast<double>(::sysconf(_SC_PAGESIZE)) : kNan;
}

double virtual_bytes() { return stat_field(23).value_or(kNan); }

double cpu_seconds() {
  timespec used{};
  if (::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used) != 0) return kNan;
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) / 1e9;
}

// The start of this process since the epoch: its start since boot plus the boot's time.
double start_time_seconds() {
  const auto ticks = stat_field(22);
  timespec now{};
  timespec since_boot{};
  if (!ticks || ::clock_gettime(CLOCK_REALTIME, &now) != 0 ||
      ::clock_gettime(CLOCK_BOOTTIME, &since_boot) != 0)
    return kNan;
  const auto seconds = [](const timespec& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) / 1e9;
  };
  return seconds(now) - seconds(since_boot) + *ticks / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

/// A number of /proc/self/status: `unit` times the number after `key`.
double status_number(std::string_view key, double unit) {
  std::istringstream file{remora::detail::read_file("/proc/self/status").value_or("")};
  std::string line;
  while (std::getline(file, line)) {
    if (!std::string_view{line}.starts_with(key)) continue;
    const std::string_view rest = std::string_view{line}.substr(key.size());
    const auto value = number(rest.substr(std::min(rest.find_first_not_of(" \t"), rest.size())));
    return value ? *value * unit : kNan;
  }
  return kNan;  // the kernel does not report it
}

double open_descriptors() {
  DIR* const directory = ::opendir("/proc/self/fd");
  if (directory == nullptr) return kNan;
  double count = 0;
  while (::readdir(directory) != nullptr) ++count;
  ::closedir(directory);
  return count - 3;  // ".", ".." and the directory's own descriptor
}

double descriptors_max() {
  rlimit limit{};
  return ::getrlimit(RLIMIT_NOFILE, &limit) == 0 ? static_cast<double>(limit.rlim_cur) : kNan;
}

}  // namespace

Status register_process_metrics(Registry& registry, std::string_view version) {
  const auto keep = [](Result<CallbackHandle> handle) -> Status {
    if (!handle) return handle.error();
    handle->release();
    return ok_status();
  };
  if (const Status status = keep(registry.gauge_callback(
          "remora_build_info", "Always 1; the version of Remora in a label.",
          {{"version", std::string{version}}}, [] { return 1.0; }));
      !status)
    return status;
  if (const Status status = keep(registry.counter_callback(
          "process_cpu_seconds_total", "User and system CPU time used.", {}, cpu_seconds));
      !status)
    return status;
  // Read once: it must not change when the clock is set.
  const double started = start_time_seconds();
  struct ProcessGauge {
    const char* name;
    const char* help;
    std::function<double()> value;
  };
  const std::array<ProcessGauge, 8> gauges{{
      {"process_start_time_seconds", "Start of the process since the epoch.",
       [started] { return started; }},
      {"process_resident_memory_bytes", "Memory of the process in RAM.", resident_bytes},
      {"process_virtual_memory_bytes", "Address space of the process.", virtual_bytes},
      {"process_pinned_memory_bytes", "Memory that devices may use, which stays where it is.",
       [] { return status_number("VmPin:", kKibibyte); }},
      {"process_locked_memory_bytes", "Memory locked by mlock and its kin.",
       [] { return status_number("VmLck:", kKibibyte); }},
      {"process_threads", "Threads.", [] { return status_number("Threads:", 1); }},
      {"process_open_fds", "Open file descriptors.", open_descriptors},
      {"process_max_fds", "Most descriptors the process may open.", descriptors_max},
  }};
  for (const ProcessGauge& gauge : gauges)
    if (const Status status =
            keep(registry.gauge_callback(gauge.name, gauge.help, {}, gauge.value));
        !status)
      return status;
  return ok_status();
}

}  // namespace remora::metrics
