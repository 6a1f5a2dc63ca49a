#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace remora::apps::doctor {

/// Files below a root; paths are absolute ("/proc/self/status"). Nothing is ever written.
/// Thread safety: const.
class FileView {
 public:
  explicit FileView(std::string root = {}) : root_{std::move(root)} {}

  /// The text without the newlines at its end; nothing where it cannot be read. Blocks.
  [[nodiscard]] std::optional<std::string> read(const std::string& path) const;
  /// read(), or an empty text.
  [[nodiscard]] std::string text(const std::string& path) const;
  /// Also where a symbolic link stands that leads nowhere.
  [[nodiscard]] bool exists(const std::string& path) const;
  /// Names in a folder, sorted; none where it is not there or may not be read.
  [[nodiscard]] std::vector<std::string> list(const std::string& path) const;
  /// The last part of a symbolic link's target; empty where there is no link.
  [[nodiscard]] std::string link_name(const std::string& path) const;
  /// All of its target, as it is written there.
  [[nodiscard]] std::string link(const std::string& path) const;

 private:
  std::string root_;  ///< put before each path
};

}  // namespace remora::apps::doctor
