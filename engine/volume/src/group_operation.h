#pragma once

/// Reads and writes of one group that are carried out together.

#include <chrono>
#include <cstdint>
#include <span>

#include <remora/engine/buffer.h>
#include <remora/result.h>

namespace remora::volume::detail {

/// A read or a write within one zone, and its outcome.
struct GroupOperation {
  std::uint64_t offset_bytes = 0;  ///< in the group
  std::uint64_t length_bytes = 0;
  Target into{std::span<std::byte>{}};        ///< of a read
  Source from{std::span<const std::byte>{}};  ///< of a write; no bytes: zeroes
  std::chrono::steady_clock::time_point until{};
  Status status{};
};

}  // namespace remora::volume::detail
