#pragma once

#include <cstddef>
#include <cstdint>

namespace remora::transport::tcp {

/// The most that a server's thread does for one lane before it serves the others.
inline constexpr std::size_t kMaxStepRequests = 64;
inline constexpr std::uint64_t kMaxStepBytes = std::uint64_t{256} << 10U;
/// The most bytes of a step while the thread serves no other lane: a large answer then goes with
/// one send.
inline constexpr std::uint64_t kMaxLoneStepBytes = std::uint64_t{1} << 20U;

}  // namespace remora::transport::tcp
