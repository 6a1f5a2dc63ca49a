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

  /// The text without the newlines at its end; empty: it cannot be read. Blocks.
  [[nodiscard]] std::optional<std::string> read(const std::string& path) const;
  /// read(), or an empty text.
  [[nodiscard]] std::string text(const std::string& path) const;
  /// Whether the path exists; also true for a symbolic link without a target.
  [[nodiscard]] bool exists(const std::string& path) const;
  /// Names in a folder, sorted; none if it does not exist or may not be read.
  [[nodiscard]] std::vector<std::string> list(const std::string& path) const;
  /// The last part of a symbolic link's target; empty: no link.
  [[nodiscard]] std::string link_name(const std::string& path) const;
  /// The whole target of the link, as written in it.
  [[nodiscard]] std::string link(const std::string& path) const;

 private:
  std::string root_;  ///< put before each path
};

}  // namespace remora::apps::doctor
