#include "signal_at.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iostream>
#include <string_view>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

namespace remora::testing {
namespace {

std::string text_at(pid_t pid, std::uint64_t address) {
  std::array<char, 256> bytes{};
  const iovec into{bytes.data(), bytes.size() - 1};
  const iovec from{reinterpret_cast<void*>(address), bytes.size() - 1};  // NOLINT
  const ssize_t got = ::process_vm_readv(pid, &into, 1, &from, 1, 0);
  return got > 0 ? std::string{bytes.data()} : std::string{};
}

/// How often the main thread has been about to make the calls that steps count.
struct CallCounts {
  int populate = 0;
  int pread = 0;
  int pwrite = 0;
};

/// Whether the system call that is about to be made is the step.
bool is_step(pid_t pid, const std::string& step, CallCounts& counts) {
  __ptrace_syscall_info call{};
  if (::ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof call, &call) <= 0 ||
      call.op != PTRACE_SYSCALL_INFO_ENTRY)
    return false;
  if (call.entry.nr == SYS_madvise && call.entry.args[2] == MADV_POPULATE_WRITE)
    return "populate:" + std::to_string(++counts.populate) == step;
  if (call.entry.nr == SYS_pread64) return "pread:" + std::to_string(++counts.pread) == step;
  if (call.entry.nr == SYS_pwrite64) return "pwrite:" + std::to_string(++counts.pwrite) == step;
  return call.entry.nr == SYS_openat && text_at(pid, call.entry.args[1]) == step;
}

std::string status_of(const std::string& folder, std::string_view key) {
  std::ifstream file{folder + "/status"};
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(key)) return line.substr(key.size());
  return {};
}

/// Waits until `signal` is no longer pending for the process and the thread that takes signals, if
/// there is one, has gone back to sleep; not at all where a thread that stands still would have to
/// take it.
void await_taken(pid_t pid, int signal) {
  const std::string process = "/proc/" + std::to_string(pid);
  const std::uint64_t mask = std::uint64_t{1} << static_cast<unsigned>(signal - 1);
  std::string taker;
  for (pid_t task = pid; task < pid + 64 && taker.empty(); ++task) {
    const std::string folder = process + "/task/" + std::to_string(task);
    if (status_of(folder, "Name:\t") == "remora-signals") taker = folder;
  }
  if (taker.empty()) return;
  const auto pending = [&] {
    return std::strtoull(status_of(process, "ShdPnd:\t").c_str(), nullptr, 16) & mask;
  };
  while (pending() != 0 || !status_of(taker, "State:\t").starts_with('S')) ::usleep(1000);
}

int exit_status(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

int signal_at(const std::string& step, int signal, char** argv) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
    ::raise(SIGSTOP);
    ::execv(argv[0], argv);
    ::_exit(127);
  }
  std::cout << pid << std::endl;
  int status = 0;
  ::waitpid(pid, &status, 0);
  ::ptrace(PTRACE_SETOPTIONS, pid, nullptr, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL);
  int pass_on = 0;
  for (CallCounts counts;;) {
    ::ptrace(PTRACE_SYSCALL, pid, nullptr, pass_on);
    if (::waitpid(pid, &status, 0) != pid) return 125;
    if (WIFEXITED(status) || WIFSIGNALED(status)) return 125;
    const bool at_call = WSTOPSIG(status) == (SIGTRAP | 0x80);
    pass_on = at_call || WSTOPSIG(status) == SIGTRAP ? 0 : WSTOPSIG(status);
    if (at_call && is_step(pid, step, counts)) break;
  }
  ::kill(pid, signal);
  await_taken(pid, signal);
  ::ptrace(PTRACE_DETACH, pid, nullptr, nullptr);
  ::waitpid(pid, &status, 0);
  return exit_status(status);
}

}  // namespace remora::testing
