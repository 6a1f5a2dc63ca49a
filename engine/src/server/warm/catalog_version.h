#pragma once

#include <cstdint>

namespace remora::detail {

/// The version of the records that this process leaves to the next one, and the oldest version that
/// may read them. These functions are in a source file of their own, so that a test can link a
/// program of another version from the same objects.
[[nodiscard]] std::uint32_t catalog_version() noexcept;
[[nodiscard]] std::uint32_t catalog_oldest_reader() noexcept;

}  // namespace remora::detail
