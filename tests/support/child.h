#pragma once

/// Other processes of a test: the test program itself, started again in a helper mode.

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

namespace remora::test {

/// `key=value` words given to a helper.
class HelperArguments {
 public:
  explicit HelperArguments(std::map<std::string, std::string> values)
      : values_{std::move(values)} {}
  [[nodiscard]] std::string text(const std::string& key, const std::string& fallback = {}) const;
  [[nodiscard]] std::uint64_t number(const std::string& key, std::uint64_t fallback = 0) const;

 private:
  std::map<std::string, std::string> values_;
};

/// What a helper does; its result is the exit status. It speaks with its parent in lines on stdin
/// and stdout, and ends when stdin does. It is killed when its parent's thread ends.
using Helper = std::function<int(const HelperArguments&)>;

/// Runs the tests, or the helper that `--helper NAME key=value…` names: the main() of a program
/// that starts itself again.
int run_tests_or_helper(int argc, char** argv, const std::map<std::string, Helper>& helpers);

/// Writes a line to the parent.
void say(std::string_view line);
/// Next line of the parent; nothing at the end of stdin.
std::optional<std::string> hear();

/// A running helper. Destroying it kills and reaps it.
class Child {
 public:
  /// Starts this program again as `helper`. Throws where that is not possible.
  Child(const std::string& helper, const std::vector<std::string>& arguments);
  ~Child();
  Child(Child&& other) noexcept;
  Child& operator=(Child&&) = delete;
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  /// Next line of its stdout; nothing when it has closed it, or after `timeout`.
  std::optional<std::string> read_line(std::chrono::milliseconds timeout = std::chrono::seconds{
                                           30});
  void write_line(std::string_view line) const;
  void close_input();
  void send_signal(int number) const;
  /// SIGSTOP; returns when all of its threads stand still. SIGCONT is sent by send_signal().
  void pause() const;

  /// Waits for its end: the exit status, or 128 + signal. Nothing after `timeout`.
  std::optional<int> wait(std::chrono::milliseconds timeout = std::chrono::seconds{30});
  /// SIGKILL, and reaped.
  void kill();

 private:
  pid_t pid_ = -1;
  int input_ = -1;
  int output_ = -1;
  std::string pending_;
};

}  // namespace remora::test
