#include <algorithm>
#include <ostream>
#include <tuple>

#include <remora/config/diagnostics.h>
#include <remora/config/printable.h>

namespace remora::config {

std::string Diagnostic::to_string() const {
  std::string text = printable(file);
  if (line != 0) text.append(":").append(std::to_string(line));
  if (line != 0 && column != 0) text.append(":").append(std::to_string(column));
  if (!text.empty()) text.append(": ");
  if (!key.empty()) text.append(key).append(": ");
  return text.append(message);
}

void Diagnostics::add(Diagnostic diagnostic) {
  if (list_.size() == kMax) {
    ++dropped_;
    return;
  }
  list_.push_back(std::move(diagnostic));
}

void Diagnostics::sort_by_place() {
  std::stable_sort(list_.begin(), list_.end(), [](const Diagnostic& a, const Diagnostic& b) {
    return std::tie(a.line, a.column) < std::tie(b.line, b.column);
  });
}

std::string Diagnostics::to_string() const {
  std::string text;
  for (const Diagnostic& diagnostic : list_) text.append(diagnostic.to_string()).append("\n");
  if (dropped_ != 0) text.append("and ").append(std::to_string(dropped_)).append(" more\n");
  return text;
}

std::ostream& operator<<(std::ostream& out, const Diagnostic& diagnostic) {
  return out << diagnostic.to_string();
}

std::ostream& operator<<(std::ostream& out, const Diagnostics& diagnostics) {
  return out << diagnostics.to_string();
}

}  // namespace remora::config
