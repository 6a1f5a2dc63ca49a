#include "stripe_map.h"

#include <bit>
#include <limits>
#include <string>

namespace remora::volume::detail {

Result<StripeMap> StripeMap::of(const VolumeRecord& record) {
  const auto wrong = [&](const char* what) {
    return Error{Code::kProtocol, "open volume"}.with_subject(record.name + ", " + what);
  };
  if (!std::has_single_bit(record.stripe_bytes) || record.stripe_bytes < kStripeBytesMin)
    return wrong("the stripe unit is no power of two from 4 KiB on");
  if (record.width == 0 || record.width > kWidthMax) return wrong("the width is out of range");
  if (record.group_bytes == 0 || record.group_bytes > kGroupBytesMax)
    return wrong("the size of its groups is out of range");
  if (record.group_bytes % record.stripe_bytes != 0)
    return wrong("the groups are no multiple of the stripe unit");
  if (record.size_bytes == 0) return wrong("the size is 0");
  if (record.group_count() > kGroupsMax) return wrong("there are too many groups");
  // The last unit has a number of 32 bits.
  if ((record.size_bytes - 1) / record.stripe_bytes > std::numeric_limits<std::uint32_t>::max())
    return wrong("there are more than 2^32 stripe units");

  StripeMap made;
  made.size_bytes_ = record.size_bytes;
  made.unit_mask_ = record.stripe_bytes - 1;
  made.unit_shift_ = static_cast<std::uint32_t>(std::countr_zero(record.stripe_bytes));
  made.width_ = record.width;
  made.units_of_group_ = static_cast<std::uint32_t>(record.group_bytes / record.stripe_bytes);
  made.group_count_ = static_cast<std::uint32_t>(record.group_count());
  return made;
}

}  // namespace remora::volume::detail
