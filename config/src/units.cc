#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <span>

#include <remora/config/units.h>

#include "text.h"

namespace remora::config {
namespace {

struct Unit {
  std::string_view name;
  std::uint64_t factor;
};

// Smallest first; format_* searches from the end.
constexpr std::array kSizeUnits{Unit{"B", 1}, Unit{"KiB", 1ULL << 10U}, Unit{"MiB", 1ULL << 20U},
                                Unit{"GiB", 1ULL << 30U}, Unit{"TiB", 1ULL << 40U}};
constexpr std::array kDurationUnits{Unit{"ns", 1},
                                    Unit{"us", 1'000},
                                    Unit{"ms", 1'000'000},
                                    Unit{"s", 1'000'000'000},
                                    Unit{"m", 60'000'000'000},
                                    Unit{"h", 3'600'000'000'000}};

enum class Fault : std::uint8_t {
  kNothing,
  kEmpty,
  kNotDecimal,  // does not begin with a digit
  kLeadingZero,
  kNotWhole,  // a point, comma or exponent after the digits
  kUnit,      // the rest is no unit of the list
  kNoUnit,    // a unit is required
  kTooLarge,
};

struct Quantity {
  Fault fault = Fault::kNothing;
  std::uint64_t value = 0;
  std::string_view unit;  // the text after the digits
};

bool is_decimal_digit(char c) { return c >= '0' && c <= '9'; }

// Digits without sign or leading zero, then the rest of the text.
Quantity parse_digits(std::string_view text) {
  if (text.empty()) return {Fault::kEmpty, 0, {}};
  const auto end = std::find_if_not(text.begin(), text.end(), is_decimal_digit);
  const auto length = static_cast<std::size_t>(end - text.begin());
  if (length == 0) return {Fault::kNotDecimal, 0, {}};
  if (length > 1 && text.front() == '0') return {Fault::kLeadingZero, 0, {}};
  Quantity quantity{Fault::kNothing, 0, text.substr(length)};
  const std::string_view rest = quantity.unit;
  const bool exponent =
      rest.size() > 1 && (rest[0] == 'e' || rest[0] == 'E') && is_decimal_digit(rest[1]);
  if (!rest.empty() && (rest[0] == '.' || rest[0] == ',' || rest[0] == '_' || exponent))
    quantity.fault = Fault::kNotWhole;
  for (const char c : text.substr(0, length)) {
    std::uint64_t next = 0;
    if (__builtin_mul_overflow(quantity.value, std::uint64_t{10}, &next) ||
        __builtin_add_overflow(next, static_cast<std::uint64_t>(c - '0'), &next)) {
      quantity.fault = Fault::kTooLarge;
      break;
    }
    quantity.value = next;
  }
  return quantity;
}

Quantity parse_quantity(std::string_view text, std::span<const Unit> units, bool unit_required,
                        std::uint64_t max) {
  Quantity quantity = parse_digits(text);
  if (quantity.fault != Fault::kNothing && quantity.fault != Fault::kTooLarge) return quantity;
  std::uint64_t factor = 1;
  if (!quantity.unit.empty()) {
    const auto* const unit = std::find_if(
        units.data(), units.data() + units.size(),
        [&quantity](const Unit& candidate) { return candidate.name == quantity.unit; });
    if (unit == units.data() + units.size()) {
      quantity.fault = Fault::kUnit;
      return quantity;
    }
    factor = unit->factor;
  } else if (unit_required) {
    quantity.fault = Fault::kNoUnit;
    return quantity;
  }
  if (quantity.fault == Fault::kTooLarge) return quantity;
  if (__builtin_mul_overflow(quantity.value, factor, &quantity.value) || quantity.value > max)
    quantity.fault = Fault::kTooLarge;
  return quantity;
}

Quantity size_quantity(std::string_view text) {
  return parse_quantity(text, kSizeUnits, false, std::numeric_limits<std::uint64_t>::max());
}

Quantity duration_quantity(std::string_view text) {
  return parse_quantity(text, kDurationUnits, true,
                        static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()));
}

Quantity number_quantity(std::string_view text) {
  return parse_quantity(text, {}, false, std::numeric_limits<std::uint64_t>::max());
}

Error error_of(Fault fault, Operation operation, std::string_view text) {
  const Code code = fault == Fault::kTooLarge ? Code::kOutOfRange : Code::kInvalidArgument;
  return Error{code, operation}.with_subject(text);
}

std::string lower(std::string_view text) {
  std::string result{text};
  for (char& c : result) c = ascii_lower(c);
  return result;
}

// The unit that the author of `wrong` may have meant, or an empty text.
std::string_view size_unit_meant(std::string_view wrong) {
  const std::string unit = lower(wrong);
  if (unit == "b" || unit == "byte" || unit == "bytes") return "B";
  if (unit == "k" || unit == "kb" || unit == "kib" || unit == "ki") return "KiB";
  if (unit == "m" || unit == "mb" || unit == "mib" || unit == "mi") return "MiB";
  if (unit == "g" || unit == "gb" || unit == "gib" || unit == "gi") return "GiB";
  if (unit == "t" || unit == "tb" || unit == "tib" || unit == "ti") return "TiB";
  return {};
}

std::string_view duration_unit_meant(std::string_view wrong) {
  const std::string unit = lower(wrong);
  if (unit == "ns" || unit == "nsec") return "ns";
  if (unit == "us" || unit == "usec" || unit == "\xc2\xb5s") return "us";
  if (unit == "ms" || unit == "msec") return "ms";
  if (unit == "s" || unit == "sec" || unit == "secs" || unit == "second" || unit == "seconds")
    return "s";
  if (unit == "m" || unit == "min" || unit == "minute" || unit == "minutes") return "m";
  if (unit == "h" || unit == "hour" || unit == "hours") return "h";
  return {};
}

std::string trim(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return std::string{text.substr(first, text.find_last_not_of(" \t") - first + 1)};
}

struct Wording {
  std::string_view kind;     // "a size"
  std::string_view example;  // "64GiB"
  std::string_view units;    // "B, KiB, MiB, GiB or TiB"
  std::string_view max;
  std::string_view (*meant)(std::string_view);
};

std::string explain_unit(std::string_view text, const Quantity& quantity, const Wording& words) {
  const std::string number{text.substr(0, text.size() - quantity.unit.size())};
  const std::string unit = trim(quantity.unit);
  if (words.units.empty()) return "expected a whole number without a unit";
  const std::string_view meant = words.meant(unit);
  if (meant.empty())
    return "unknown unit " + in_quotes(unit) + ": the units are " + std::string{words.units};
  if (meant == unit) return "no space between number and unit: write " + number + unit;
  return "unknown unit " + in_quotes(unit) + ": write " + number + std::string{meant};
}

std::string explain(std::string_view text, const Quantity& quantity, const Wording& words) {
  std::string expected =
      "expected " + std::string{words.kind} + " such as " + std::string{words.example};
  switch (quantity.fault) {
    case Fault::kNothing: return {};
    case Fault::kEmpty: return expected + ", found nothing";
    case Fault::kNotDecimal: return expected + ", found " + in_quotes(text);
    case Fault::kLeadingZero:
      return in_quotes(text) + " has a leading zero: numbers are decimal, write it without";
    case Fault::kNotWhole:
      return in_quotes(text) + " is not a whole number" +
             (words.units.empty() ? "" : ": use the next smaller unit");
    case Fault::kUnit: return explain_unit(text, quantity, words);
    case Fault::kNoUnit:
      return in_quotes(text) + " has no unit: the units are " + std::string{words.units};
    case Fault::kTooLarge:
      return in_quotes(text) + " is too large: at most " + std::string{words.max};
  }
  return expected;
}

std::string format_quantity(std::uint64_t value, std::span<const Unit> units) {
  for (auto unit = units.rbegin(); unit != units.rend(); ++unit)
    if (value % unit->factor == 0)
      return std::to_string(value / unit->factor) + std::string{unit->name};
  return std::to_string(value);
}

}  // namespace

Result<std::uint64_t> parse_size(std::string_view text) {
  const Quantity quantity = size_quantity(text);
  if (quantity.fault != Fault::kNothing) return error_of(quantity.fault, "parse_size", text);
  return quantity.value;
}

Result<std::chrono::nanoseconds> parse_duration(std::string_view text) {
  const Quantity quantity = duration_quantity(text);
  if (quantity.fault != Fault::kNothing) return error_of(quantity.fault, "parse_duration", text);
  return std::chrono::nanoseconds{static_cast<std::int64_t>(quantity.value)};
}

Result<std::uint64_t> parse_number(std::string_view text) {
  const Quantity quantity = number_quantity(text);
  if (quantity.fault != Fault::kNothing) return error_of(quantity.fault, "parse_number", text);
  return quantity.value;
}

std::string explain_size(std::string_view text) {
  return explain(text, size_quantity(text),
                 {"a size", "64GiB", "B, KiB, MiB, GiB and TiB", "16777215TiB", size_unit_meant});
}

std::string explain_duration(std::string_view text) {
  return explain(
      text, duration_quantity(text),
      {"a duration", "250ms", "ns, us, ms, s, m and h", "2562047h", duration_unit_meant});
}

std::string explain_number(std::string_view text) {
  return explain(text, number_quantity(text),
                 {"a whole number", "16", {}, "18446744073709551615", size_unit_meant});
}

std::string format_size(std::uint64_t size_bytes) {
  if (size_bytes == 0) return "0B";
  return format_quantity(size_bytes, kSizeUnits);
}

std::string format_duration(std::chrono::nanoseconds duration) {
  const std::int64_t count = duration.count();
  if (count == 0) return "0s";
  const auto magnitude = static_cast<std::uint64_t>(count);
  if (count < 0) return std::string{"-"}.append(format_quantity(0 - magnitude, kDurationUnits));
  return format_quantity(magnitude, kDurationUnits);
}

}  // namespace remora::config
