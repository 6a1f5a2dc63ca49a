#pragma once

/// A write with notify: the message by which the client tells the serving application of the write.

#include <cstddef>
#include <cstdint>

namespace remora::transport {

/// The client fills it in; the server checks every field.
struct Notice {
  std::uint64_t grant_id = 0;
  std::uint64_t offset_bytes = 0;  ///< in the region
  std::uint64_t length_bytes = 0;
  std::uint32_t tag = 0;  ///< the client chooses it
};

/// Notices of one session that the serving application has not handled yet. At this number the
/// lanes of the session accept no further notice, and the client waits.
inline constexpr std::size_t kMaxNotices = 256;

}  // namespace remora::transport
