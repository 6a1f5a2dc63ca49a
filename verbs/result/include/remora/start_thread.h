#pragma once

/// The only function by which the library starts threads: each start can fail, and returns the
/// reason.
///
/// A process gets no thread if its user (RLIMIT_NPROC), its cgroup (pids.max) or the kernel
/// (threads-max, pid_max) has reached its limit, or if there is no memory for a stack.

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <new>
#include <pthread.h>
#include <string>
#include <string_view>
#include <sys/resource.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>

#include <remora/result.h>
#include <remora/system_file.h>

namespace remora::detail {

/// A file of /proc or /sys; empty if it cannot be read.
[[nodiscard]] inline std::string text_of(const std::string& path) {
  return read_file(path.c_str()).value_or("");
}

/// The path of this process's cgroup for `pids`, version 2 or 1, with its mount; empty: none.
[[nodiscard]] inline std::string pids_cgroup() {
  const std::string text = text_of("/proc/self/cgroup");
  std::string found;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    const std::size_t path = line.find('/');
    if (path == std::string_view::npos) continue;
    if (line.find(":pids:") < path) return "/sys/fs/cgroup/pids" + std::string{line.substr(path)};
    if (line.starts_with("0::")) found = "/sys/fs/cgroup" + std::string{line.substr(path)};
  }
  return found;
}

/// The limit that has prevented a thread, as far as this process can see it: "pids.max 12 of cgroup
/// /a/b".
[[nodiscard]] inline std::string limit_on_threads() {
  const auto number = [](const std::string& text, std::uint64_t& value) {
    return std::from_chars(text.data(), text.data() + text.size(), value).ec == std::errc{};
  };
  for (std::string group = pids_cgroup(); group.size() > 1;
       group.resize(std::max<std::size_t>(group.find_last_of('/'), 0))) {
    std::uint64_t max = 0;
    std::uint64_t now = 0;
    if (number(text_of(group + "/pids.max"), max) &&
        number(text_of(group + "/pids.current"), now) && now >= max)
      return "pids.max " + std::to_string(max) + " of " + group;
  }
  rlimit limit{};  // does not hold for root
  if (::getuid() != 0 && ::getrlimit(RLIMIT_NPROC, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    return "RLIMIT_NPROC " + std::to_string(limit.rlim_cur);
  return "at no limit that it can see";
}

/// The error of a thread named `name` that could not be started.
[[nodiscard]] inline Error no_thread(std::string_view name, int number) noexcept {
  const Error error =
      Error{Code::kSystem, "pthread_create"}.with_reason(Reason::kNoThread).with_errno(number);
  try {
    return error.with_subject("thread " + std::string{name} + ": " + limit_on_threads());
  } catch (const std::exception&) {  // no memory for the text
    return error.with_subject(name);
  }
}

/// Runs `body` on a new thread; `name` has at most 15 bytes, as top(1) shows it. `body` is moved or
/// copied; on an error it has not run. Errors: kSystem with Reason::kNoThread (its subject names
/// the limit); kOutOfMemory.
template <typename Body>
[[nodiscard]] Result<std::thread> start_thread(const char* name, Body&& body) noexcept {
  try {
    std::thread thread{std::forward<Body>(body)};
    ::pthread_setname_np(thread.native_handle(), name);
    return thread;
  } catch (const std::system_error& failure) {
    return no_thread(name, failure.code().value());
  } catch (const std::exception&) {
    return Error{Code::kOutOfMemory, "pthread_create"}.with_subject(name);
  }
}

}  // namespace remora::detail
