#pragma once

/// A child of fork(2) that checks something and says what it found wrong.

#include <algorithm>
#include <array>
#include <cerrno>
#include <fcntl.h>
#include <functional>
#include <string>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include <remora/result.h>
#include <remora/sanitizers.h>

namespace remora::test {

/// ThreadSanitizer reports the parent's threads in a child, and ends a child that starts one.
#if REMORA_THREAD_SANITIZER
inline constexpr bool kChildrenOfFork = false;
#else
inline constexpr bool kChildrenOfFork = true;
#endif

/// Started with `body`, whose text the parent reads with found(); ended by _exit(), so that nothing
/// of the test program runs in it. A child that hangs is ended by SIGALRM after two minutes.
class Forked {
 public:
  explicit Forked(const std::function<std::string()>& body) {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) return;
    read_end_ = ends[0];
    pid_ = ::fork();
    if (pid_ == 0) {
      ::alarm(120);
      const std::string found = body();
      // No more than a pipe takes at once.
      (void)!::write(ends[1], found.data(), std::min<std::size_t>(found.size(), 4096));
      ::_exit(0);
    }
    ::close(ends[1]);
  }
  Forked(const Forked&) = delete;
  Forked& operator=(const Forked&) = delete;
  ~Forked() { (void)found(); }

  /// Waits for its end. What it said; or how it ended, where that was not well.
  std::string found() {
    if (pid_ < 0) return "there is no child";
    std::string text;
    std::array<char, 4096> buffer{};
    while (true) {
      const ssize_t count = ::read(read_end_, buffer.data(), buffer.size());
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) break;
      text.append(buffer.data(), static_cast<std::size_t>(count));
    }
    ::close(std::exchange(read_end_, -1));
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
    if (WIFSIGNALED(status)) return text + " signal " + std::to_string(WTERMSIG(status));
    if (WEXITSTATUS(status) != 0) return text + " exit " + std::to_string(WEXITSTATUS(status));
    return text;
  }

 private:
  pid_t pid_ = -1;
  int read_end_ = -1;
};

/// "" where `answer` is the error of a handle that a parent process made; else what it is.
template <typename Answer>
std::string not_refused(const std::string& call, const Answer& answer) {
  if (!answer && answer.error().code() == Code::kClosed &&
      answer.error().reason() == Reason::kForked)
    return {};
  return call + ": " + (answer ? std::string{"ok"} : answer.error().message()) + '\n';
}

}  // namespace remora::test
