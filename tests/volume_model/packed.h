#pragma once

/// A state in 32 bytes, the same for all states that differ only in the names of members and zones.

#include <cstdint>

#include "state.h"

namespace remora::volume_model {

using Packed = Row<std::uint64_t, 4>;

/// Exact: every field is in it. Members and zones are sorted by their fields.
[[nodiscard]] Packed pack(const State& state) noexcept;
[[nodiscard]] State unpack(const Packed& packed) noexcept;

}  // namespace remora::volume_model
