#pragma once

/// Memory that core dumps of this process leave out. Source: madvise(2), core(5).

#include <cstddef>
#include <span>
#include <sys/mman.h>

namespace remora::detail {

/// Keeps `mapping` out of core dumps, unless `dumped`. An old kernel dumps it nevertheless.
inline void keep_out_of_core_dumps(std::span<std::byte> mapping, bool dumped) noexcept {
  if (!dumped && !mapping.empty()) (void)::madvise(mapping.data(), mapping.size(), MADV_DONTDUMP);
}

}  // namespace remora::detail
