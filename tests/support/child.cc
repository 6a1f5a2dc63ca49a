#include "support/child.h"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <iostream>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdexcept>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>

namespace remora::test {
namespace {

using Clock = std::chrono::steady_clock;

struct Pipe {
  Pipe() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error("pipe2 failed");
    read_end = ends[0];
    write_end = ends[1];
  }
  int read_end = -1;
  int write_end = -1;
};

}  // namespace

std::string HelperArguments::text(const std::string& key, const std::string& fallback) const {
  const auto found = values_.find(key);
  return found == values_.end() ? fallback : found->second;
}

std::uint64_t HelperArguments::number(const std::string& key, std::uint64_t fallback) const {
  const auto found = values_.find(key);
  return found == values_.end() ? fallback : std::strtoull(found->second.c_str(), nullptr, 10);
}

int run_tests_or_helper(int argc, char** argv, const std::map<std::string, Helper>& helpers) {
  const std::vector<std::string> words(argv, argv + argc);
  if (words.size() >= 3 && words[1] == "--helper") {
    const auto found = helpers.find(words[2]);
    if (found == helpers.end()) {
      std::fprintf(stderr, "there is no helper '%s'\n", words[2].c_str());
      return 2;
    }
    std::map<std::string, std::string> values;
    for (std::size_t i = 3; i < words.size(); ++i) {
      const std::size_t equals = words[i].find('=');
      if (equals != std::string::npos)
        values[words[i].substr(0, equals)] = words[i].substr(equals + 1);
    }
    if (values.count("orphan") == 0) ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    try {
      return found->second(HelperArguments{std::move(values)});
    } catch (const std::exception& thrown) {
      std::fprintf(stderr, "helper %s: %s\n", words[2].c_str(), thrown.what());
      return 3;
    }
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

void say(std::string_view line) { std::cout << line << std::endl; }

std::optional<std::string> hear() {
  std::string line;
  if (!std::getline(std::cin, line)) return std::nullopt;
  return line;
}

Child::Child(const std::string& helper, const std::vector<std::string>& arguments) {
  ::signal(SIGPIPE, SIG_IGN);  // a helper that was killed does not take us along
  const Pipe to_child;
  const Pipe from_child;
  std::vector<std::string> words{"/proc/self/exe", "--helper", helper};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, to_child.read_end, STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, from_child.write_end, STDOUT_FILENO);
  // Not all libraries open theirs with close-on-exec: those of libcurl's own pipes would count.
  ::posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
  const int failed =
      ::posix_spawn(&pid_, "/proc/self/exe", &actions, nullptr, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(to_child.read_end);
  ::close(from_child.write_end);
  input_ = to_child.write_end;
  output_ = from_child.read_end;
  if (failed != 0) {
    pid_ = -1;
    throw std::runtime_error("posix_spawn failed");
  }
}

Child::~Child() {
  kill();
  close_input();
  if (output_ >= 0) ::close(output_);
}

Child::Child(Child&& other) noexcept
    : pid_{std::exchange(other.pid_, -1)},
      input_{std::exchange(other.input_, -1)},
      output_{std::exchange(other.output_, -1)},
      pending_{std::move(other.pending_)} {}

std::optional<std::string> Child::read_line(std::chrono::milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  for (;;) {
    const std::size_t end = pending_.find('\n');
    if (end != std::string::npos) {
      std::string line = pending_.substr(0, end);
      pending_.erase(0, end + 1);
      return line;
    }
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd wanted{output_, POLLIN, 0};
    if (left <= 0 || ::poll(&wanted, 1, static_cast<int>(left)) == 0) return std::nullopt;
    std::array<char, 4096> buffer{};
    const ssize_t got = ::read(output_, buffer.data(), buffer.size());
    if (got <= 0) return std::nullopt;
    pending_.append(buffer.data(), static_cast<std::size_t>(got));
  }
}

void Child::write_line(std::string_view line) const {
  const std::string text = std::string{line} + '\n';
  if (::write(input_, text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    throw std::runtime_error("a helper does not listen");
}

void Child::close_input() {
  if (input_ >= 0) ::close(std::exchange(input_, -1));
}

void Child::send_signal(int number) const {
  if (pid_ > 0) ::kill(pid_, number);
}

void Child::pause() const {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGSTOP);
  ::waitpid(pid_, nullptr, WUNTRACED);
}

std::optional<int> Child::wait(std::chrono::milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  while (pid_ > 0) {
    int status = 0;
    const pid_t ended = ::waitpid(pid_, &status, WNOHANG);
    if (ended == pid_) {
      pid_ = -1;
      return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    }
    if (ended < 0 || Clock::now() >= deadline) return std::nullopt;
    std::this_thread::sleep_for(std::chrono::milliseconds{2});
  }
  return std::nullopt;
}

void Child::kill() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

}  // namespace remora::test
