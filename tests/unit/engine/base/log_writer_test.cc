#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include <remora/engine/log_writer.h>
#include <remora/sanitizers.h>

#include "base/log.h"

namespace remora {
namespace {

using namespace std::chrono_literals;

/// A small pipe, of two pages: one that holds a byte in its only page polls as full.
struct Pipe {
  Pipe() {
    EXPECT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
    ::fcntl(ends[1], F_SETPIPE_SZ, 8192);
  }
  ~Pipe() {
    end_reader();
    ::close(ends[1]);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  void end_reader() {
    if (ends[0] >= 0) ::close(ends[0]);
    ends[0] = -1;
  }
  /// Reads until `wanted` has been seen, or nothing comes for 5 s.
  std::string read_until(const std::string& wanted) {
    std::string seen;
    std::array<char, 4096> part{};
    ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
    for (int i = 0; i < 500 && seen.find(wanted) == std::string::npos; ++i) {
      const ssize_t count = ::read(ends[0], part.data(), part.size());
      if (count > 0)
        seen.append(part.data(), static_cast<std::size_t>(count)), i = 0;
      else
        std::this_thread::sleep_for(10ms);
    }
    return seen;
  }
  std::array<int, 2> ends{-1, -1};
};

/// How many lines `text` says are missing, all gaps together.
std::uint64_t told_in(const std::string& text) {
  const std::string before = "warning: ";
  std::uint64_t sum = 0;
  for (std::size_t at = text.find(before); at != std::string::npos; at = text.find(before, at + 1))
    sum += std::stoull(text.substr(at + before.size()));
  return sum;
}

TEST(LogWriter, LinesAreWrittenInOrder) {
  Pipe pipe;
  LogWriter writer{pipe.ends[1]};
  writer.write("one\n");
  writer.write("two\n");
  EXPECT_TRUE(writer.flush(5s));
  EXPECT_EQ(pipe.read_until("two\n"), "one\ntwo\n");
  EXPECT_EQ(writer.lost(), 0U);
}

TEST(LogWriter, FullPipeBlocksNoCallerAndLosesWithACount) {
  Pipe pipe;
  LogWriter writer{pipe.ends[1], {.lines_max = 100, .bytes_max = 1 << 20}};
  const std::string line = std::string(99, 'x') + '\n';
  for (int i = 0; i < 1000; ++i) writer.write(line);
  EXPECT_GE(writer.lost(), 800U);
  EXPECT_LT(writer.lost(), 1000U);
  const std::uint64_t lost = writer.lost();
  // The reader comes back: what was queued, and at each gap how many are missing. Where the writer
  // was quick, there are several.
  std::string seen;
  std::uint64_t told = 0;
  do {
    const std::string more = pipe.read_until(" lines of the log were lost");
    if (more.empty()) break;
    seen += more;
    told = told_in(seen);
  } while (told < lost);
  EXPECT_EQ(told, lost) << seen;
  writer.write("again\n");
  EXPECT_NE(pipe.read_until("again\n").find("again\n"), std::string::npos);
  EXPECT_EQ(writer.lost(), lost);
}

TEST(LogWriter, QueueIsBoundedInBytes) {
  Pipe pipe;
  LogWriter writer{pipe.ends[1], {.lines_max = 1000, .bytes_max = 10000}};
  for (int i = 0; i < 100; ++i) writer.write(std::string(1000, 'x'));
  EXPECT_GE(writer.lost(), 80U);
}

TEST(LogWriter, FullPipeHoldsUpNoStop) {
  Pipe pipe;
  LogWriter writer{pipe.ends[1]};
  for (int i = 0; i < 1000; ++i) writer.write(std::string(99, 'x') + '\n');
  writer.stop(1s);
  EXPECT_GE(writer.lost(), 900U);
  writer.write("behind the end\n");  // at once, or not at all
}

TEST(LogWriter, StopWritesWhatIsQueued) {
  Pipe pipe;
  {
    LogWriter writer{pipe.ends[1]};
    for (int i = 0; i < 10; ++i) writer.write("line\n");
  }
  EXPECT_EQ(pipe.read_until("line\nline\nline\nline\nline\nline\nline\nline\nline\nline\n").size(),
            50U);
}

TEST(LogWriter, ReaderThatHasEndedCostsLinesAndRaisesNoSignal) {
  Pipe pipe;
  pipe.end_reader();
  struct sigaction before {};
  ::sigaction(SIGPIPE, nullptr, &before);
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  ::sigaction(SIGPIPE, &standard, nullptr);
  LogWriter writer{pipe.ends[1]};
  writer.write("lost\n");
  EXPECT_TRUE(writer.flush(5s));
  EXPECT_EQ(writer.lost(), 1U);
  writer.stop(1s);
  writer.write("at once\n");
  EXPECT_EQ(writer.lost(), 2U);
  struct sigaction after {};
  ::sigaction(SIGPIPE, &before, &after);
  EXPECT_EQ(after.sa_handler, SIG_DFL) << "the application's own";
}

TEST(LogWriter, ChildOfForkWritesWithoutTheThread) {
#if REMORA_THREAD_SANITIZER
  GTEST_SKIP() << "it reports the parent's thread, and bears no new one, in a child";
#endif
  Pipe pipe;
  LogWriter writer{pipe.ends[1]};
  writer.write("parent\n");
  EXPECT_TRUE(writer.flush(5s));
  const pid_t child = ::fork();
  if (child == 0) {
    writer.write("child\n");
    writer.stop(1s);
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(pipe.read_until("child\n"), "parent\nchild\n");
}

/// In a child, since standard error is the process's: the library's own logger.
template <typename Prepare>
int status_after_warnings(Prepare&& prepare) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGPIPE, SIG_DFL);
    ::alarm(20);  // ends it where a line blocks
    prepare();
    for (int i = 0; i < 2000; ++i)
      log::warn({"test.line"}, "a line of the library's, number {}", i);
    ::_exit(7);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

TEST(Log, StderrWithoutAReaderEndsNoProcess) {
#if REMORA_THREAD_SANITIZER
  GTEST_SKIP() << "it reports the parent's thread, and bears no new one, in a child";
#endif
  Pipe pipe;
  pipe.end_reader();
  EXPECT_EQ(status_after_warnings([&] { ::dup2(pipe.ends[1], STDERR_FILENO); }), 7);
}

TEST(Log, FullPipeOfStderrBlocksNoThread) {
#if REMORA_THREAD_SANITIZER
  GTEST_SKIP() << "it reports the parent's thread, and bears no new one, in a child";
#endif
  Pipe pipe;
  EXPECT_EQ(status_after_warnings([&] { ::dup2(pipe.ends[1], STDERR_FILENO); }), 7);
}

}  // namespace
}  // namespace remora
