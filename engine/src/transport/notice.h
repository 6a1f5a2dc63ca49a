#pragma once

/// A write with notify: what the client tells the serving application about it.

#include <cstddef>
#include <cstdint>

namespace remora::transport {

/// The client fills it in; the server checks every field.
struct Notice {
  std::uint64_t grant_id = 0;
  std::uint64_t offset_bytes = 0;  ///< in the region
  std::uint64_t length_bytes = 0;
  std::uint32_t tag = 0;  ///< the client's own
};

/// Notices of one session that the serving application has not handled yet. The lanes of a session
/// with as many accept no further notice, so that its client waits.
inline constexpr std::size_t kMaxNotices = 256;

}  // namespace remora::transport
