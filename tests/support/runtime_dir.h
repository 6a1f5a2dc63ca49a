#pragma once

/// A private folder for the control sockets of shared memory, so that tests never meet each other's
/// nor a real server's.

#include <string>
#include <vector>

namespace remora::test {

/// Makes a folder and points REMORA_RUNTIME_DIR to it, for this process and its children, until it
/// is destroyed. One at a time in a process; made before threads are.
class RuntimeDir {
 public:
  RuntimeDir();
  ~RuntimeDir();
  RuntimeDir(const RuntimeDir&) = delete;
  RuntimeDir& operator=(const RuntimeDir&) = delete;

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// Names of what stands in it.
  [[nodiscard]] std::vector<std::string> entries() const;
  /// Removes what stands in it.
  void clear() const;

 private:
  std::string path_;
  std::string before_;
  bool had_before_ = false;
};

}  // namespace remora::test
