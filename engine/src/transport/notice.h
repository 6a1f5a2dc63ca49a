#pragma once

/// A write with notify: the message by which the client tells the serving application of the write.

#include <cstddef>
#include <cstdint>

namespace remora::transport {

/// The client fills it in; the server checks every field. No member has a default, since each
/// operation has room for a notice, which the data path would initialise with it.
struct Notice {
  std::uint64_t grant_id;
  std::uint64_t offset_bytes;  ///< in the region
  std::uint64_t length_bytes;
  std::uint32_t tag;  ///< the client chooses it
};

/// Notices of one session that the serving application has not handled yet. At this number the
/// lanes of the session accept no further notice, and the client waits.
inline constexpr std::size_t kMaxNotices = 256;

}  // namespace remora::transport
