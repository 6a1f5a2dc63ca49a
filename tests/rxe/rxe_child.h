#pragma once

/// Other processes of these tests: this program started again in a role, and programs that are not
/// ours. Started by fork and exec, so that no verbs object is shared.

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

namespace remora::test {

using Role = std::function<int(const std::vector<std::string>& arguments)>;

/// Makes `name` a role of this program; called by a static object of a test file.
struct RegisterRole {
  RegisterRole(const std::string& name, Role role);
};
/// Runs the role that `--role NAME arguments…` asks for; nothing when none is asked for.
std::optional<int> run_role(int argc, char** argv);

/// A running program. Destroying it kills and reaps it.
class RxeChild {
 public:
  enum class Errors : std::uint8_t {
    kInherited,  ///< its stderr is ours
    kMerged,     ///< it goes where its stdout goes
  };
  /// Throws std::runtime_error where it cannot be started. `program` is looked up in PATH.
  explicit RxeChild(std::vector<std::string> command, Errors errors = Errors::kInherited);
  /// This program in a role.
  static RxeChild role(const std::string& name, const std::vector<std::string>& arguments);
  ~RxeChild();
  RxeChild(RxeChild&& other) noexcept;
  RxeChild(const RxeChild&) = delete;
  RxeChild& operator=(const RxeChild&) = delete;
  RxeChild& operator=(RxeChild&&) = delete;

  /// Next line of stdout; nothing at its end or after `timeout`.
  std::optional<std::string> line(std::chrono::milliseconds timeout = std::chrono::seconds{15});
  /// All further lines until the end.
  std::string rest();
  void kill() noexcept;
  /// The exit status, 128 + signal; nothing after `timeout`.
  std::optional<int> wait(std::chrono::milliseconds timeout = std::chrono::seconds{15});

 private:
  pid_t pid_ = -1;
  int output_ = -1;
  std::string pending_;
};

}  // namespace remora::test
