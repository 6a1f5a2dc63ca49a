#include "rxe_child.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <poll.h>
#include <stdexcept>
#include <string_view>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>

namespace remora::test {
namespace {

std::map<std::string, Role>& roles() {
  static std::map<std::string, Role> all;
  return all;
}

}  // namespace

RegisterRole::RegisterRole(const std::string& name, Role role) { roles()[name] = std::move(role); }

std::optional<int> run_role(int argc, char** argv) {
  if (argc < 3 || std::string_view{argv[1]} != "--role") return std::nullopt;
  const auto found = roles().find(argv[2]);
  if (found == roles().end()) return 127;
  return found->second({argv + 3, argv + argc});
}

RxeChild::RxeChild(std::vector<std::string> command, Errors errors) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error{"pipe2"};
  std::vector<char*> arguments;
  arguments.reserve(command.size() + 1);
  for (std::string& word : command) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_ = ::fork();
  if (pid_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::dup2(ends[1], STDOUT_FILENO);
    if (errors == Errors::kMerged) ::dup2(ends[1], STDERR_FILENO);
    ::execvp(arguments[0], arguments.data());
    ::_exit(127);
  }
  ::close(ends[1]);
  output_ = ends[0];
  if (pid_ < 0) throw std::runtime_error{"fork"};
}

RxeChild RxeChild::role(const std::string& name, const std::vector<std::string>& arguments) {
  std::vector<std::string> command{"/proc/self/exe", "--role", name};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return RxeChild{std::move(command)};
}

RxeChild::RxeChild(RxeChild&& other) noexcept
    : pid_{std::exchange(other.pid_, -1)},
      output_{std::exchange(other.output_, -1)},
      pending_{std::move(other.pending_)} {}

RxeChild::~RxeChild() {
  kill();
  if (output_ >= 0) ::close(output_);
}

std::optional<std::string> RxeChild::line(std::chrono::milliseconds timeout) {
  const auto give_up = std::chrono::steady_clock::now() + timeout;
  for (;;) {
    if (const auto end = pending_.find('\n'); end != std::string::npos) {
      std::string text = pending_.substr(0, end);
      pending_.erase(0, end + 1);
      return text;
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        give_up - std::chrono::steady_clock::now());
    pollfd entry{output_, POLLIN, 0};
    if (left.count() <= 0 || ::poll(&entry, 1, static_cast<int>(left.count())) <= 0)
      return std::nullopt;
    std::array<char, 4096> buffer{};
    const ssize_t got = ::read(output_, buffer.data(), buffer.size());
    if (got <= 0) return std::nullopt;
    pending_.append(buffer.data(), static_cast<std::size_t>(got));
  }
}

std::string RxeChild::rest() {
  std::string all;
  while (const auto text = line()) all += *text + "\n";
  return all + pending_;
}

void RxeChild::kill() noexcept {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

std::optional<int> RxeChild::wait(std::chrono::milliseconds timeout) {
  const auto give_up = std::chrono::steady_clock::now() + timeout;
  while (pid_ > 0) {
    int status = 0;
    if (::waitpid(pid_, &status, WNOHANG) == pid_) {
      pid_ = -1;
      return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    if (std::chrono::steady_clock::now() >= give_up) return std::nullopt;
    std::this_thread::sleep_for(std::chrono::milliseconds{10});
  }
  return std::nullopt;
}

}  // namespace remora::test
