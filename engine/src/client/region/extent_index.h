#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <remora/assert.h>

#include "transport/wire_extent.h"

namespace remora::detail {

/// Finds the extent of an operation on a region of several extents by one shift, without a search.
///
/// The index cuts the region into parts of one length, a power of two, and knows for each part the
/// extent of the part's first byte. The pieces of a pool have one length, so that each part lies
/// within one extent, unless the free memory of the pool was in fragments. An operation behind the
/// end of that extent is for extent_of() (operation_record.h), which searches.
///
/// Immutable, so any number of threads may use it. It has a copy of the extents.
class ExtentIndex {
 public:
  struct Part {
    std::uint64_t end_bytes;  ///< of the extent, from the start of the region
    /// The remote address of the extent, less the extent's offset in the region: with the offset of
    /// an operation it is the operation's address. Modulo 2^64.
    std::uint64_t base_address;
    std::uint32_t remote_key;
  };
  /// The most parts. A region of 64 GiB in pieces of 1 GiB has 64.
  static constexpr std::size_t kMaxParts = 1024;

  /// `extents`: those of a region, in its order, which have no gaps. A region of one extent has no
  /// parts, and its operations do not use the index.
  explicit ExtentIndex(std::span<const transport::WireExtent> extents);

  [[nodiscard]] bool empty() const noexcept { return parts_.empty(); }
  /// For an index that is not empty, and bytes that lie within the region: the part whose extent
  /// contains them. Null: they lie in several extents, or only a search finds theirs.
  [[nodiscard, gnu::always_inline]] const Part* find(std::uint64_t offset_bytes,
                                                     std::uint64_t length_bytes) const noexcept {
    REMORA_ASSERT_HOT(offset_bytes >> shift_ < parts_.size(), "the bytes lie within the region");
    const Part& part = parts_[offset_bytes >> shift_];
    return offset_bytes + length_bytes <= part.end_bytes ? &part : nullptr;
  }

 private:
  unsigned shift_ = 0;  ///< the length of a part is 2^shift_
  std::vector<Part> parts_;
};

}  // namespace remora::detail
