#include "cli/human.h"

#include <array>
#include <cstddef>
#include <cstdio>

namespace remora::apps {
namespace {

/// Three significant digits: 1.23, 12.3, 123.
std::string three_digits(double value, const char* unit) {
  std::array<char, 48> text{};
  std::snprintf(text.data(), text.size(), "%.*f %s",
                value < 9.995   ? 2
                : value < 99.95 ? 1
                                : 0,
                value, unit);
  return text.data();
}

}  // namespace

std::string human_bytes(double bytes) {
  constexpr std::array kUnits{"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < kUnits.size()) {
    bytes /= 1024;
    ++unit;
  }
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), unit == 0 ? "%.0f %s" : "%.1f %s", bytes, kUnits[unit]);
  return text.data();
}

std::string human_rate(double bytes_per_second) {
  std::array<char, 32> text{};
  const bool giga = bytes_per_second >= 1e9;
  std::snprintf(text.data(), text.size(), "%.2f %s", bytes_per_second / (giga ? 1e9 : 1e6),
                giga ? "GB/s" : "MB/s");
  return text.data();
}

std::string human_operations(double operations_per_second) {
  if (operations_per_second >= 999.5e3) return three_digits(operations_per_second / 1e6, "Mops/s");
  if (operations_per_second >= 999.5) return three_digits(operations_per_second / 1e3, "kops/s");
  return three_digits(operations_per_second, "ops/s");
}

std::string human_nanoseconds(double nanoseconds) {
  if (nanoseconds >= 999.5e6) return three_digits(nanoseconds / 1e9, "s");
  if (nanoseconds >= 999.5e3) return three_digits(nanoseconds / 1e6, "ms");
  if (nanoseconds >= 999.5) return three_digits(nanoseconds / 1e3, "us");
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.0f ns", nanoseconds);
  return text.data();
}

}  // namespace remora::apps
