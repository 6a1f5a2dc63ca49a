// What a server process leaves to the next one, in any bytes: what is taken is whole, has no two
// regions over each other, and is the same when it is written and read again.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "input.h"
#include "server/warm/kept_catalog.h"

namespace remora::fuzz {
namespace {

using detail::KeptCatalog;
using detail::PoolExtent;

void catalog(std::span<const std::byte> bytes) {
  const auto taken = detail::decode_catalog(bytes);
  if (!taken) return require(!taken.error().message().empty(), "a refusal can be printed");
  std::vector<PoolExtent> all;
  for (const detail::KeptRegion& region : taken->regions)
    all.insert(all.end(), region.extents.begin(), region.extents.end());
  std::sort(all.begin(), all.end(), [](const PoolExtent& a, const PoolExtent& b) {
    return a.offset_bytes < b.offset_bytes;
  });
  std::uint64_t end = 0;
  for (const PoolExtent& extent : all) {
    require(extent.offset_bytes >= end, "extents do not overlap");
    end = extent.offset_bytes + extent.length_bytes;
    require(end > extent.offset_bytes && end <= taken->pool.size_bytes, "extents are of the pool");
  }
  const std::vector<std::byte> again = detail::encode(*taken);
  const auto read = detail::decode_catalog(again);
  require(read.ok(), "what is written can be read");
  require(detail::encode(*read) == again, "a catalog survives writing");
}

void sessions(std::span<const std::byte> bytes) {
  const auto taken = detail::decode_sessions(bytes);
  if (!taken) return require(!taken.error().message().empty(), "a refusal can be printed");
  const std::vector<std::byte> again = detail::encode(*taken);
  const auto read = detail::decode_sessions(again);
  require(read.ok() && detail::encode(*read) == again, "sessions survive writing");
}

}  // namespace
}  // namespace remora::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span bytes{reinterpret_cast<const std::byte*>(data), size};
  remora::fuzz::catalog(bytes);
  remora::fuzz::sessions(bytes);
  return 0;
}
