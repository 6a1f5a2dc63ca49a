#include "report.h"

#include <utility>

namespace remora::config {
namespace {

// `regions[3].name` -> `regions[3]` -> `regions` -> empty.
std::string_view enclosing(std::string_view path) {
  const std::size_t end = path.find_last_of(".[");
  return end == std::string_view::npos ? std::string_view{} : path.substr(0, end);
}

}  // namespace

void Report::note_place(const std::string& path, const Place& place) {
  places_.insert_or_assign(path, place);
}

bool Report::written(std::string_view path) const { return places_.contains(path); }

Place Report::place(std::string_view path) const {
  while (true) {
    const auto found = places_.find(path);
    if (found != places_.end()) return found->second;
    if (path.empty()) return {};
    path = enclosing(path);
  }
}

void Report::fault(const std::string& path, std::string message) {
  fault_at(place(path), path, std::move(message));
}

void Report::fault_at(const Place& place, const std::string& path, std::string message) {
  mark_bad(path);
  diagnostics_.add({file_, place.line, place.column, path, std::move(message)});
}

bool Report::good(std::string_view path) const {
  for (; !path.empty(); path = enclosing(path))
    if (bad_.contains(path)) return false;
  return !bad_.contains("");
}

Diagnostics Report::take() {
  diagnostics_.sort_by_place();
  return std::move(diagnostics_);
}

}  // namespace remora::config
