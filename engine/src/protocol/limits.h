#pragma once

/// Limits of the control channel, the same on both sides and on every transport.

#include <cstddef>

namespace remora::control {

/// Length of the longest control message.
inline constexpr std::size_t kMaxControlMessageBytes = std::size_t{16} * 1024;
/// Requests of one session without an answer yet, at most: the receiver has room for as many.
inline constexpr std::size_t kMaxControlRequests = 8;

}  // namespace remora::control
