#pragma once

/// Quantities for people, rounded, with their unit.

#include <string>

namespace remora::apps {

/// "1.5 GiB": for people, rounded. config::format_size() is the exact form.
[[nodiscard]] std::string human_bytes(double bytes);
/// "2.41 GB/s": decimal, as network rates are.
[[nodiscard]] std::string human_rate(double bytes_per_second);
/// "1.23 Mops/s", "456 kops/s", "78 ops/s": three digits.
[[nodiscard]] std::string human_operations(double operations_per_second);
/// "830 ns", "12.3 us", "1.24 ms", "2.05 s": three digits.
[[nodiscard]] std::string human_nanoseconds(double nanoseconds);

}  // namespace remora::apps
