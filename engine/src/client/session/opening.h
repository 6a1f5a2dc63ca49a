#pragma once

#include <cstdint>

namespace remora::detail {

/// How a grant is opened: beside older grants of the region, or instead of them.
enum class Opening : std::uint8_t { kOpen, kFence };

}  // namespace remora::detail
