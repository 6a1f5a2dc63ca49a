#include "naming.h"

#include <algorithm>
#include <array>

namespace remora::metrics {
namespace {

constexpr bool is_letter(char c) noexcept {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
constexpr bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }

// No colon: Prometheus reserves it for recording rules.
bool is_identifier(std::string_view text) noexcept {
  return !text.empty() && is_letter(text.front()) &&
         std::all_of(text.begin(), text.end(), [](char c) { return is_letter(c) || is_digit(c); });
}

bool has_control_byte(std::string_view text) noexcept {
  return std::any_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
}

// The length of the well-formed UTF-8 sequence at the start of `text`, 0: there is none. Source:
// RFC 3629, section 4.
std::size_t utf8_sequence(std::string_view text) noexcept {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const auto within = [&](std::size_t i, unsigned low, unsigned high) {
    return i < text.size() && byte(i) >= low && byte(i) <= high;
  };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first <= 0xdf) return within(1, 0x80, 0xbf) ? 2 : 0;
  if (first >= 0xe0 && first <= 0xef) {
    const unsigned low = first == 0xe0 ? 0xa0 : 0x80;   // no overlong forms
    const unsigned high = first == 0xed ? 0x9f : 0xbf;  // no surrogates
    return within(1, low, high) && within(2, 0x80, 0xbf) ? 3 : 0;
  }
  if (first >= 0xf0 && first <= 0xf4) {
    const unsigned low = first == 0xf0 ? 0x90 : 0x80;
    const unsigned high = first == 0xf4 ? 0x8f : 0xbf;
    return within(1, low, high) && within(2, 0x80, 0xbf) && within(3, 0x80, 0xbf) ? 4 : 0;
  }
  return 0;
}

// A malformed byte would make Prometheus refuse the whole scrape.
bool is_utf8(std::string_view text) noexcept {
  while (!text.empty()) {
    const std::size_t length = utf8_sequence(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

Error invalid(Operation rule, std::string_view subject) {
  return Error{Code::kInvalidArgument, rule}.with_subject(subject);
}

}  // namespace

Status check_name(std::string_view name, Kind kind) {
  if (name.size() > kNameBytesMax)
    return invalid("metric name length", name).with_limit(name.size(), kNameBytesMax);
  if (!is_identifier(name)) return invalid("metric name must match [a-zA-Z_][a-zA-Z0-9_]*", name);
  const bool total = name.ends_with("_total");
  if (kind == Kind::kCounter && !total)
    return invalid("the name of a counter must end in _total", name);
  if (kind != Kind::kCounter && total) return invalid("only a counter may end in _total", name);
  constexpr std::array<std::string_view, 3> kHistogramParts{"_bucket", "_count", "_sum"};
  for (const std::string_view part : kHistogramParts)
    if (name.ends_with(part))
      return invalid("_bucket, _count and _sum belong to the parts of a histogram", name);
  return ok_status();
}

Status check_help(std::string_view help) {
  if (help.empty()) return invalid("metric help must not be empty", help);
  if (help.size() > kHelpBytesMax)
    return invalid("metric help length", help).with_limit(help.size(), kHelpBytesMax);
  if (has_control_byte(help) || !is_utf8(help))
    return invalid("metric help must be one line of UTF-8", help);
  return ok_status();
}

Status check_shape(std::string_view name, const HistogramShape& shape) {
  if (shape.unit == Unit::kSeconds && !name.ends_with("_seconds"))
    return invalid("the name of a histogram of durations must end in _seconds", name);
  if (shape.unit == Unit::kBytes && !name.ends_with("_bytes"))
    return invalid("the name of a histogram of bytes must end in _bytes", name);
  if (shape.bounds.empty()) return invalid("a histogram needs at least one bound", name);
  if (shape.bounds.size() > kBoundsMax)
    return invalid("histogram bounds", name).with_limit(shape.bounds.size(), kBoundsMax);
  const auto not_ascending = [](std::uint64_t a, std::uint64_t b) { return a >= b; };
  if (std::adjacent_find(shape.bounds.begin(), shape.bounds.end(), not_ascending) !=
      shape.bounds.end())
    return invalid("histogram bounds must ascend", name);
  if (shape.bounds.back() > Buckets::kMaxValue) return invalid("histogram bound too large", name);
  return ok_status();
}

Result<Labels> normalise(const Labels& labels) {
  if (labels.size() > kLabelsMax)
    return Error{Code::kInvalidArgument, "labels of a series"}.with_limit(labels.size(),
                                                                          kLabelsMax);
  Labels sorted = labels;
  std::sort(sorted.begin(), sorted.end());
  std::string_view previous;
  for (const Label& label : sorted) {
    if (label.name.size() > kNameBytesMax || !is_identifier(label.name))
      return invalid("label name must match [a-zA-Z_][a-zA-Z0-9_]*", label.name);
    if (label.name.starts_with("__") || label.name == "le" || label.name == "quantile")
      return invalid("label name is reserved by Prometheus", label.name);
    if (label.name == previous) return invalid("label is given twice", label.name);
    if (label.value.size() > kLabelValueBytesMax)
      return invalid("label value length", label.name)
          .with_limit(label.value.size(), kLabelValueBytesMax);
    if (!is_utf8(label.value) || label.value.find('\0') != std::string::npos)
      return invalid("label value must be UTF-8 without NUL", label.name);
    previous = label.name;
  }
  return sorted;
}

}  // namespace remora::metrics
