/// MirrorGroup: several reads or writes at once.

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <span>

#include <remora/assert.h>

#include "mirror_group.h"

namespace remora::volume::detail {

/// Without waiting: a range of an operation that came before, and an unresolved zone, are left to
/// hold_range().
bool MirrorGroup::try_to_hold(ZoneLocks::Hold& hold, const GroupOperation& operation, bool shared) {
  const std::uint32_t zone = zone_of(operation.offset_bytes);
  if (!hold.lock(zone, operation.offset_bytes, operation.offset_bytes + operation.length_bytes,
                 shared, Time::clock::now()))
    return false;
  if (!unresolved_.has(zone)) return true;
  hold.release();
  return false;
}

/// Writes those that can begin at once, as one write of several pieces: the rules for a write hold
/// for all of them together.
Status MirrorGroup::write_ready(std::span<const GroupOperation> writes, Together& together) {
  const GateEntry inside{control_.gate(), Time::clock::now()};
  if (!inside) return {};
  std::array<std::optional<ZoneLocks::Hold>, kTogetherMax> ranges;
  std::array<ZoneLocks::Hold*, kTogetherMax> holds{};
  std::array<MemberWrite, kTogetherMax> pieces;
  std::size_t count = 0;
  Time until = Time::max();
  for (std::size_t i = 0; i < writes.size(); ++i) {
    const GroupOperation& each = writes[i];
    ZoneLocks::Hold& range = ranges[i].emplace(*locks_);
    if (!try_to_hold(range, each, false)) continue;
    together.set(i);
    until = std::min(until, each.until);
    holds[count] = &range;
    pieces[count++] = member_write(each.offset_bytes, each.length_bytes, each.from);
  }
  if (count == 0) return {};
  return write_held(std::span{pieces}.first(count), std::span{holds}.first(count), until);
}

/// What failed for all may be due to one of them: its memory, or its deadline, which was that of
/// all. So each is tried again alone. It has posted already, if the failure left that in doubt.
void MirrorGroup::write_together(std::span<GroupOperation> writes) {
  REMORA_ASSERT(writes.size() <= kTogetherMax, "a lane has room for the operations");
  Together together;
  const Status done = write_ready(writes, together);
  const bool posted = !done && (done.error().code() == Code::kIndeterminate ||
                                done.error().code() == Code::kProvider ||
                                done.error().code() == Code::kInvalidArgument);
  for (std::size_t i = 0; i < writes.size(); ++i) {
    GroupOperation& each = writes[i];
    if (together.test(i) && (done || Time::clock::now() >= each.until)) {
      each.status = done;
      continue;
    }
    each.status = write_range(each.offset_bytes, each.length_bytes, each.from, each.until);
    if (together.test(i) && posted && !each.status) each.status = in_doubt(each.status.error());
  }
}

/// Reads those that can begin at once.
Status MirrorGroup::read_ready(std::span<const GroupOperation> reads, Together& together) {
  if (control_.roles().promoting) return {};
  const GateEntry inside{control_.read_gate(), Time::clock::now()};
  if (!inside) return {};
  const bool exclusive = exclusive_.load(std::memory_order_acquire);
  std::array<std::optional<ZoneLocks::Hold>, kTogetherMax> ranges;
  std::array<MemberRead, kTogetherMax> pieces;
  std::size_t count = 0;
  Time until = Time::max();
  for (std::size_t i = 0; i < reads.size(); ++i) {
    const GroupOperation& each = reads[i];
    // Rule 24, as in read().
    if (exclusive && !try_to_hold(ranges[i].emplace(*locks_), each, true)) continue;
    together.set(i);
    until = std::min(until, each.until);
    pieces[count++] = {.offset_bytes = data_offset_ + each.offset_bytes, .into = each.into};
  }
  if (count == 0) return {};
  const Status done = read_primary(std::span{pieces}.first(count), until);
  if (!done && done.error().code() == Code::kWouldBlock) return Error{Code::kTimedOut, "read"};
  return done;
}

void MirrorGroup::read_together(std::span<GroupOperation> reads) {
  REMORA_ASSERT(reads.size() <= kTogetherMax, "a lane has room for the operations");
  Together together;
  const Status done = read_ready(reads, together);
  for (std::size_t i = 0; i < reads.size(); ++i) {
    GroupOperation& each = reads[i];
    each.status = together.test(i) && (done || Time::clock::now() >= each.until)
                      ? done
                      : read(each.offset_bytes, each.into, each.until);
  }
}

}  // namespace remora::volume::detail
