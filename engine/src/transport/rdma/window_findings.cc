#include "transport/rdma/window_findings.h"

#include <algorithm>

namespace remora::transport::rdma {

std::string_view to_string(Verdict verdict) noexcept {
  switch (verdict) {
    case Verdict::kKept: return "kept";
    case Verdict::kBroken: return "broken";
    case Verdict::kUntested: return "untested";
  }
  return "unknown";
}

WindowFindings WindowFindings::untested(const std::string& reason) {
  WindowFindings findings;
  for (WindowCheck* check :
       {&findings.range, &findings.rights, &findings.binding, &findings.invalidation})
    check->reason = reason;
  return findings;
}

bool WindowFindings::all_kept() const noexcept { return first_not_kept() == nullptr; }

const WindowCheck* WindowFindings::first_not_kept() const noexcept {
  const auto all = checks();
  const auto* const found = std::find_if(all.begin(), all.end(), [](const WindowCheck* check) {
    return check->verdict != Verdict::kKept;
  });
  return found == all.end() ? nullptr : *found;
}

bool WindowFindings::conclusive() const noexcept {
  const auto all = checks();
  return std::none_of(all.begin(), all.end(), [](const WindowCheck* check) {
    return check->verdict == Verdict::kUntested;
  });
}

std::string WindowFindings::text() const {
  std::string text;
  for (const WindowCheck* check : checks()) {
    if (!text.empty()) text += "; ";
    text += std::string{check->name} + " " + std::string{to_string(check->verdict)};
    if (!check->reason.empty()) text += ": " + check->reason;
  }
  return text;
}

}  // namespace remora::transport::rdma
