#include <array>
#include <string_view>
#include <utility>

#include <remora/verbs/access.h>

namespace remora::verbs {

std::string to_string(Access access) {
  static constexpr std::array<std::pair<Access, std::string_view>, 9> kNames{{
      {Access::kLocalWrite, "local-write"},
      {Access::kRemoteWrite, "remote-write"},
      {Access::kRemoteRead, "remote-read"},
      {Access::kRemoteAtomic, "remote-atomic"},
      {Access::kWindowBind, "window-bind"},
      {Access::kZeroBased, "zero-based"},
      {Access::kOnDemand, "on-demand"},
      {Access::kHugePages, "huge-pages"},
      {Access::kRelaxedOrdering, "relaxed-ordering"},
  }};
  std::string text;
  for (const auto& [right, name] : kNames) {
    if (!contains(access, right)) continue;
    if (!text.empty()) text += '|';
    text += name;
  }
  return text.empty() ? "none" : text;
}

std::ostream& operator<<(std::ostream& out, Access access) { return out << to_string(access); }

}  // namespace remora::verbs
