#include "client/datapath/many_pairs.h"

#include <algorithm>
#include <array>
#include <cstdio>

namespace remora::detail {

Error of_pair(const Error& error, const std::string& region_name, std::size_t index) noexcept {
  // The name is cut to this length, so that the index fits behind it.
  constexpr int kNameBytes = 70;
  std::array<char, Error::kSubjectBytes> text{};
  const int length = std::snprintf(text.data(), text.size(), "%.*s, pair %zu", kNameBytes,
                                   region_name.c_str(), index);
  return error.with_subject(
      {text.data(), std::min(text.size() - 1, static_cast<std::size_t>(std::max(length, 0)))});
}

}  // namespace remora::detail
