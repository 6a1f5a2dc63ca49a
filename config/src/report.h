#pragma once

/// Collects faults by key path, knows where each key stands, and remembers which keys are already
/// known to be wrong so that no rule complains about a value that could not be read.

#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include <remora/config/diagnostics.h>

#include "yaml_tree.h"

namespace remora::config {

class Report {
 public:
  explicit Report(std::string file) : file_{std::move(file)} {}

  /// `path` is written in the file, with its value at `place`. The root's path is empty.
  void note_place(const std::string& path, const Place& place);
  [[nodiscard]] bool written(std::string_view path) const;
  /// The place of `path`, or of the nearest enclosing map that is written; line 0 without a file.
  [[nodiscard]] Place place(std::string_view path) const;

  /// Adds a fault at the place of `path`, or at `place`, and marks `path` bad.
  void fault(const std::string& path, std::string message);
  void fault_at(const Place& place, const std::string& path, std::string message);
  /// Marks the path without a message of its own.
  void mark_bad(const std::string& path) { bad_.insert(path); }
  /// Whether neither `path` nor a map or list around it is bad.
  [[nodiscard]] bool good(std::string_view path) const;

  /// Sorted by place.
  Diagnostics take();

 private:
  std::string file_;
  std::map<std::string, Place, std::less<>> places_;
  std::set<std::string, std::less<>> bad_;
  Diagnostics diagnostics_;
};

}  // namespace remora::config
