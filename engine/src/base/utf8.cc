#include "base/utf8.h"

namespace remora::detail {

std::size_t character_bytes(std::string_view text) noexcept {
  const auto at = [text](std::size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
  };
  const auto follows = [&](std::size_t i) { return (at(i) & 0xc0U) == 0x80U; };
  const unsigned first = at(0);
  if (first < 0x80) return text.empty() ? 0 : 1;
  if (first >= 0xc2 && first <= 0xdf) return follows(1) ? 2 : 0;
  const unsigned min_second = first == 0xe0   ? 0xa0U
                              : first == 0xf0 ? 0x90U
                                              : 0x80U;  // no longer forms
  const unsigned max_second = first == 0xed   ? 0x9fU
                              : first == 0xf4 ? 0x8fU
                                              : 0xbfU;  // no surrogates
  if (first < 0xe0 || first > 0xf4 || at(1) < min_second || at(1) > max_second || !follows(2))
    return 0;
  if (first <= 0xef) return 3;
  return follows(3) ? 4 : 0;
}

}  // namespace remora::detail
