#include "accept_encoding.h"

#include <algorithm>
#include <cstddef>
#include <optional>

#include "ascii.h"

namespace remora::metrics {
namespace {

constexpr int kWeightMax = 1000;  // thousandths: a weight has three decimals at most

bool is(std::string_view text, std::string_view lower_case) noexcept {
  return std::equal(text.begin(), text.end(), lower_case.begin(), lower_case.end(),
                    [](char a, char b) { return ascii_lower(a) == b; });
}

std::string_view trimmed(std::string_view text) noexcept {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

// Removes the text before `separator` from `text` and returns it.
std::string_view take(std::string_view& text, char separator) noexcept {
  const std::string_view taken = text.substr(0, text.find(separator));
  text.remove_prefix(std::min(text.size(), taken.size() + 1));
  return trimmed(taken);
}

// "0", "0.5", "1.000" in thousandths; 0 for any other text.
int weight_of(std::string_view text) noexcept {
  constexpr std::size_t kBytesMax = 5;
  if (text.empty() || text.size() > kBytesMax || (text[0] != '0' && text[0] != '1')) return 0;
  if (text.size() > 1 && text[1] != '.') return 0;
  int weight = (text[0] - '0') * kWeightMax;
  int unit = kWeightMax / 10;
  for (const char digit : text.substr(std::min<std::size_t>(text.size(), 2))) {
    if (digit < '0' || digit > '9') return 0;
    weight += (digit - '0') * unit;
    unit /= 10;
  }
  return weight <= kWeightMax ? weight : 0;
}

}  // namespace

bool accepts_gzip(std::string_view accept_encoding) noexcept {
  std::optional<int> gzip;
  std::optional<int> identity;
  std::optional<int> others;
  while (!accept_encoding.empty()) {
    std::string_view element = take(accept_encoding, ',');
    const std::string_view coding = take(element, ';');
    int weight = kWeightMax;
    while (!element.empty()) {
      const std::string_view parameter = take(element, ';');
      if (parameter.size() >= 2 && is(parameter.substr(0, 2), "q="))
        weight = weight_of(parameter.substr(2));
    }
    if (is(coding, "gzip") || is(coding, "x-gzip"))
      gzip = weight;
    else if (is(coding, "identity"))
      identity = weight;
    else if (coding == "*")
      others = weight;
  }
  if (!gzip) gzip = others.value_or(0);
  return *gzip > 0 && *gzip >= identity.value_or(0);
}

}  // namespace remora::metrics
