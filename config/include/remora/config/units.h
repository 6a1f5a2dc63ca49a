#pragma once

/// Sizes and durations as people write them: `64GiB`, `250ms`.
///
/// The configuration file and the command line share these functions, so a value means the same in
/// both. They are strict on purpose: a number is decimal without sign, fraction or leading zero
/// (`010` is eight to some YAML readers and ten to most people), number and unit must follow each
/// other directly, and units are spelled exactly as listed. `KB`, `MB` and `GB` are refused because
/// half of their users mean powers of ten and half mean powers of two.
///
/// Thread safety: pure functions.

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include <remora/result.h>

namespace remora::config {

/// Bytes from `<number>[B|KiB|MiB|GiB|TiB]`; a number alone is bytes.
///
/// Errors: kInvalidArgument for anything else; kOutOfRange for more than 2^64 - 1 bytes. The text
/// is the error's subject; explain_size() says what is wrong with it.
Result<std::uint64_t> parse_size(std::string_view text);

/// A duration from `<number>(ns|us|ms|s|m|h)`. The unit is required, also for zero.
///
/// Errors: kInvalidArgument for anything else; kOutOfRange for more than 2^63 - 1 ns (292 years).
/// The text is the error's subject; explain_duration() says what is wrong with it.
Result<std::chrono::nanoseconds> parse_duration(std::string_view text);

/// An unsigned decimal number without a unit.
/// Errors: kInvalidArgument; kOutOfRange for more than 2^64 - 1.
Result<std::uint64_t> parse_number(std::string_view text);

/// One sentence for a person on why parse_size() refuses `text`; empty when it does not.
[[nodiscard]] std::string explain_size(std::string_view text);
/// One sentence for a person on why parse_duration() refuses `text`; empty when it does not.
[[nodiscard]] std::string explain_duration(std::string_view text);
/// One sentence for a person on why parse_number() refuses `text`; empty when it does not.
[[nodiscard]] std::string explain_number(std::string_view text);

/// The shortest exact text in the largest unit that divides `size_bytes`: `64GiB`, `1537B`, `0B`.
/// parse_size() of it gives `size_bytes` back.
[[nodiscard]] std::string format_size(std::uint64_t size_bytes);

/// The shortest exact text in the largest unit that divides `duration`: `250ms`, `90s`, `0s`.
/// parse_duration() of it gives a duration that is not negative back; a negative one, which no
/// option accepts, is printed with its sign.
[[nodiscard]] std::string format_duration(std::chrono::nanoseconds duration);

}  // namespace remora::config
