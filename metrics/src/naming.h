#pragma once

/// The rules for names, help texts and labels (docs/adding-a-metric.md), each a typed error.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include <remora/metrics/registry.h>
#include <remora/result.h>

namespace remora::metrics {

enum class Kind : std::uint8_t { kCounter, kGauge, kHistogram };

inline constexpr std::size_t kNameBytesMax = 100;
inline constexpr std::size_t kHelpBytesMax = 500;
inline constexpr std::size_t kLabelsMax = 8;
inline constexpr std::size_t kLabelValueBytesMax = 128;
inline constexpr std::size_t kBoundsMax = 64;

/// Errors: kInvalidArgument.
Status check_name(std::string_view name, Kind kind);
Status check_help(std::string_view help);
Status check_shape(std::string_view name, const HistogramShape& shape);

/// The labels, checked and sorted by name, so that equal sets compare equal. Errors:
/// kInvalidArgument.
Result<Labels> normalise(const Labels& labels);

}  // namespace remora::metrics
