#include "text.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <vector>

namespace remora::config {
namespace {

constexpr std::size_t kQuotedBytesMax = 60;
constexpr std::size_t kDistanceBytesMax = 64;

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xc0U) == 0x80U; }

// The length of the well-formed character at the start of `text` (not empty), 0: there is none.
std::size_t utf8_length(std::string_view text) {
  const auto byte = [text](std::size_t index) -> unsigned {
    return index < text.size() ? static_cast<unsigned char>(text[index]) : 0U;
  };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead < 0xc2 || lead > 0xf4) return 0;
  const std::size_t length = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  for (std::size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xc0U) != 0x80U) return 0;
  if (lead == 0xe0 && byte(1) < 0xa0) return 0;
  if (lead == 0xed && byte(1) > 0x9f) return 0;
  if (lead == 0xf0 && byte(1) < 0x90) return 0;
  if (lead == 0xf4 && byte(1) > 0x8f) return 0;
  return length;
}

}  // namespace

std::string printable(std::string_view text) {
  constexpr std::string_view kHexDigits = "0123456789abcdef";
  std::string result;
  while (!text.empty()) {
    std::size_t length = utf8_length(text);
    const auto byte = static_cast<unsigned char>(text.front());
    const bool is_c1 = length == 2 && byte == 0xc2 && static_cast<unsigned char>(text[1]) < 0xa0;
    const bool is_control = byte < 0x20 || byte == 0x7f;
    const std::size_t shorthand = std::string_view{"\n\t\r"}.find(text.front());
    if (length != 0 && !is_c1 && !is_control) {
      result.append(text.substr(0, length));
    } else if (shorthand != std::string_view::npos) {
      result.append({'\\', "ntr"[shorthand]});
    } else {
      length = std::max<std::size_t>(length, 1);
      for (const char each : text.substr(0, length)) {
        const unsigned value = static_cast<unsigned char>(each);
        result.append({'\\', 'x', kHexDigits[value >> 4U], kHexDigits[value & 15U]});
      }
    }
    text.remove_prefix(length);
  }
  return result;
}

std::string in_quotes(std::string_view text) {
  std::size_t length = text.size();
  if (length > kQuotedBytesMax) {
    length = kQuotedBytesMax;
    while (length > 0 && is_continuation(text[length])) --length;
  }
  // append() and not "'" + ...: GCC 12 warns of an overlap in the latter at -O3 (its bug 105651).
  std::string result{"'"};
  return result.append(printable(text.substr(0, length)))
      .append(length < text.size() ? "...'" : "'");
}

std::string join(std::span<const std::string_view> words, std::string_view last_word) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i > 0 && i + 1 == words.size())
      text.append(" ").append(last_word).append(" ");
    else if (i > 0)
      text.append(", ");
    text.append(words[i]);
  }
  return text;
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  if (a.size() > kDistanceBytesMax || b.size() > kDistanceBytesMax)
    return std::numeric_limits<std::size_t>::max();
  using Row = std::array<std::size_t, kDistanceBytesMax + 1>;
  Row before_previous{};
  Row previous{};
  Row current{};
  for (std::size_t j = 0; j <= b.size(); ++j) previous[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    current[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const bool same = ascii_lower(a[i - 1]) == ascii_lower(b[j - 1]);
      current[j] =
          std::min({previous[j] + 1, current[j - 1] + 1, previous[j - 1] + (same ? 0 : 1)});
      if (i > 1 && j > 1 && ascii_lower(a[i - 1]) == ascii_lower(b[j - 2]) &&
          ascii_lower(a[i - 2]) == ascii_lower(b[j - 1]))
        current[j] = std::min(current[j], before_previous[j - 2] + 1);
    }
    before_previous = previous;
    previous = current;
  }
  return previous[b.size()];
}

std::string_view nearest(std::string_view word, std::span<const std::string_view> candidates) {
  // A third of the letters may be wrong: enough for `hugepage`, too little for `rdma` from `shm`.
  std::size_t best = std::max<std::size_t>(1, word.size() / 3) + 1;
  std::string_view result;
  for (const std::string_view candidate : candidates) {
    const std::size_t distance = edit_distance(word, candidate);
    if (distance >= best) continue;
    best = distance;
    result = candidate;
  }
  return result;
}

std::optional<std::size_t> find_invalid_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = utf8_length(text.substr(i));
    if (length == 0) return i;
    i += length;
  }
  return std::nullopt;
}

}  // namespace remora::config
