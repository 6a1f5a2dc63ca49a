#pragma once

/// "Did you mean …?": the known word that is closest to a mistyped one.
///
/// Thread safety: pure functions.

#include <cstddef>
#include <span>
#include <string_view>

namespace remora::config {

/// Damerau-Levenshtein distance (insert, delete, replace, swap of neighbours), ASCII case ignored.
/// Limited: texts longer than 64 bytes have the largest distance.
[[nodiscard]] std::size_t edit_distance(std::string_view a, std::string_view b);

/// The candidate that is a typing mistake or two away from `word` (a third of its letters); empty
/// when none is near enough.
[[nodiscard]] std::string_view nearest(std::string_view word,
                                       std::span<const std::string_view> candidates);

}  // namespace remora::config
