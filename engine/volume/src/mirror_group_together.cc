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
/// for all of them together. What fails for all may be due to one of them: its memory, or its
/// deadline, which is that of all. So each is tried again alone, while it still has its range: a
/// write of another thread that came later, and may have seen these bytes, must stay the later one.
void MirrorGroup::write_ready(std::span<GroupOperation> writes, Together& ended) {
  const GateEntry inside{control_.gate(), Time::clock::now()};
  if (!inside) return;
  std::array<std::optional<ZoneLocks::Hold>, kTogetherMax> ranges;
  std::array<MemberWrite, kTogetherMax> pieces;
  std::array<std::size_t, kTogetherMax> begun{};  // their places in `writes`
  std::size_t count = 0;
  Time until = Time::max();
  for (std::size_t i = 0; i < writes.size(); ++i) {
    const GroupOperation& each = writes[i];
    if (!try_to_hold(ranges.at(i).emplace(*locks_), each, false)) continue;
    until = std::min(until, each.until);
    begun.at(count) = i;
    pieces.at(count++) = member_write(each.offset_bytes, each.length_bytes, each.from);
  }
  if (count == 0) return;
  const std::span all{pieces.data(), count};
  WriteProgress progress{spread()};
  Status done = mark(all, until);
  if (done) done = carry_out_data(all, progress, until);
  for (std::size_t i = 0; i < count; ++i) {
    GroupOperation& each = writes[begun.at(i)];
    const bool without_effect = !done && !progress.was_posted();
    if (without_effect && Time::clock::now() < each.until) continue;
    ended.set(begun.at(i));
    each.status = done || without_effect ? done : repeat(all[i], each.until);
  }
  for (std::optional<ZoneLocks::Hold>& range : ranges) range.reset();
  for (std::size_t i = 0; i < count; ++i) {
    Status& status = writes[begun.at(i)].status;
    if (!ended.test(begun.at(i))) continue;
    if (status)
      status = acknowledge(all.subspan(i, 1), writes[begun.at(i)].until);
    else
      options_.metrics->write_failed(status.error());
  }
}

/// Some members may have it from the time before: nothing that fails now is without effect.
Status MirrorGroup::repeat(const MemberWrite& write, Time until) {
  WriteProgress progress{spread()};
  const Status done = carry_out_data(std::span{&write, 1}, progress, until);
  return done ? done : Status{in_doubt(done.error())};
}

void MirrorGroup::write_together(std::span<GroupOperation> writes) {
  REMORA_ASSERT(writes.size() <= kTogetherMax, "a lane has room for the operations");
  Together ended;
  write_ready(writes, ended);
  for (std::size_t i = 0; i < writes.size(); ++i) {
    GroupOperation& each = writes[i];
    if (!ended.test(i))
      each.status = write_range(each.offset_bytes, each.length_bytes, each.from, each.until);
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
