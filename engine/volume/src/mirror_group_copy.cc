/// MirrorGroup: repair, zones that are made equal, rebuilding, clearing.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <functional>
#include <new>
#include <span>
#include <vector>

#include "mirror_group.h"

namespace remora::volume::detail {

namespace {

/// What a copy has in memory at once.
constexpr std::uint64_t kCopyBytes = std::uint64_t{256} << 10U;

}  // namespace

/// Rule 9. A member whose bitmap cannot be read is removed, or opened again, and all are read
/// again.
Status MirrorGroup::read_bitmaps(Time until) {
  const std::uint32_t words = bitmap_.marked().word_count();
  std::vector<std::uint64_t> bits(words);
  std::vector<std::uint64_t> all;
  while (Time::clock::now() < until) {
    if (const Status done = control_.converge(until); !done) return done;
    const std::uint64_t before = control_.changes();
    const GroupRoles roles = control_.roles();
    all.assign(words, 0);
    Status failed;
    bool again = false;
    roles.in_sync.for_each([&](std::size_t slot) {
      if (!failed || again) return;
      const Status read = control_.slots().at(slot).read(
          kBitmapOffset, Target{std::as_writable_bytes(std::span{bits})});
      again = !read;
      if (!read)
        failed = control_.member_failed(slot, read.error(), until);
      else
        std::transform(all.begin(), all.end(), bits.begin(), all.begin(), std::bit_or{});
    });
    if (!failed) return failed;
    if (again || before != control_.changes()) continue;
    for (std::uint32_t word = 0; word < words; ++word) {
      bitmap_.assume(word, all[word]);
      unresolved_.set_word(word, all[word]);
    }
    return {};
  }
  return Error{Code::kTimedOut, "repair of a group"};
}

Status MirrorGroup::repair(Time until) {
  if (const Status done = read_bitmaps(until); !done) return done;
  for (std::uint32_t zone = 0; zone < zone_count(); ++zone)
    if (unresolved_.has(zone))
      if (const Status done = resolve(zone, until); !done) return done;
  for (std::uint32_t word = 0; word < bitmap_.marked().word_count(); ++word)
    if (const std::uint64_t bits = bitmap_.marked().word(word); bits != 0)
      if (const Status done = bitmap_.clear(word, bits, until); !done) return done;
  return {};
}

/// Rule 16: nothing of unknown outcome is under way any more, then the whole zone is copied.
Status MirrorGroup::resolve(std::uint32_t zone, Time until) {
  ZoneLocks::Hold hold{*locks_};
  if (!hold.lock_zone(zone, until)) return Error{Code::kTimedOut, "lock of a zone"};
  return resolve_held(zone, until);
}

Status MirrorGroup::resolve_held(std::uint32_t zone, Time until) {
  if (!unresolved_.has(zone)) return {};
  if (const Status copied = copy(zone, Spread::kNotPrimary, until); !copied) return copied;
  unresolved_.clear(zone);
  return {};
}

Status MirrorGroup::copy_zone(std::uint32_t zone, Time until) {
  const GateEntry inside{control_.read_gate(), until};
  if (!inside) return Error{Code::kTimedOut, "copy of a zone"};
  ZoneLocks::Hold hold{*locks_};
  if (!hold.lock_zone(zone, until)) return Error{Code::kTimedOut, "lock of a zone"};
  // Of an unresolved zone all members need the copy.
  const Spread to = unresolved_.has(zone) ? Spread::kNotPrimary : Spread::kSyncing;
  if (const Status copied = copy(zone, to, until); !copied) return copied;
  uncopied_.clear(zone);
  if (to == Spread::kNotPrimary) unresolved_.clear(zone);
  if (control_.roles().syncing.empty())
    return Error{Code::kBusy, "member that is built"}.with_subject("removed, or it missed a write");
  return {};
}

/// Rule 18: begins again when the primary changes.
Status MirrorGroup::copy(std::uint32_t zone, Spread to, Time until) {
  const std::uint64_t begin = zone * kZoneBytes;
  const std::uint64_t end = std::min(begin + kZoneBytes, group_bytes_);
  std::vector<std::byte> buffer;
  try {
    buffer.resize(std::min(kCopyBytes, end - begin));
  } catch (const std::bad_alloc&) {
    return Error{Code::kOutOfMemory, "copy of a zone"};
  }
  std::uint64_t at = begin;
  std::size_t primary = kMemberSlots;
  while (at < end) {
    // Before a member is read, which has a time of its own.
    if (Time::clock::now() >= until) return Error{Code::kTimedOut, "copy of a zone"};
    if (const Status done = control_.converge(until); !done) return done;
    const GroupRoles roles = control_.roles();
    const MemberSet doubtful = roles.in_sync.with(roles.syncing).both(control_.unsettled());
    if (!doubtful.empty()) {
      if (const Status done = control_.settle(doubtful, until); !done) return done;
      continue;
    }
    if (roles.primary != primary) {
      primary = roles.primary;
      at = begin;
    }
    const std::span part{buffer.data(), std::min<std::uint64_t>(buffer.size(), end - at)};
    const Status read = control_.slots().at(primary).read(data_offset_ + at, Target{part});
    if (!read) {
      const Status handled = control_.member_failed(primary, read.error(), until);
      if (!handled) return handled;
      continue;
    }
    WriteProgress progress{to};
    const MemberWrite write{.offset_bytes = data_offset_ + at, .from = part};
    if (const Status done = carry_out(write, progress, until); !done) return done;
    options_.metrics->copied(to == Spread::kSyncing ? MirrorCopy::kMembers : MirrorCopy::kZones,
                             part.size());
    at += part.size();
    // The last part, too, was read from the primary of before.
    if (control_.roles().primary != primary) at = begin;
  }
  return {};
}

Status MirrorGroup::make_in_sync(Time until) {
  {
    // No member comes in meanwhile, into a slot that these writes use. Left before the gate is
    // closed for the new configuration.
    const GateEntry inside{control_.read_gate(), until};
    if (!inside) return Error{Code::kTimedOut, "copy of a bitmap"};
    for (std::uint32_t word = 0; word < bitmap_.marked().word_count(); ++word)
      if (const Status done = bitmap_.repeat(word, until); !done) return done;
  }
  return control_.make_in_sync(until);
}

bool MirrorGroup::set_exclusive(Time until) noexcept {
  OperationGate& gate = control_.read_gate();
  gate.close();
  const bool quiet = gate.wait_quiet(until);
  if (quiet) exclusive_.store(true, std::memory_order_release);
  gate.open();
  return quiet;
}

/// A zone that cannot be resolved now is tried again at the next call; one in use, for example by
/// an operation at a member that does not answer, also by the operations that come to it.
void MirrorGroup::resolve_all(Time until) {
  const GateEntry inside{control_.read_gate(), Time::clock::now()};
  if (!inside) return;
  for (std::uint32_t zone = 0; zone < zone_count() && Time::clock::now() < until; ++zone) {
    if (!unresolved_.has(zone)) continue;
    ZoneLocks::Hold hold{*locks_};
    if (!hold.lock_zone(zone, Time::clock::now())) continue;
    if (!resolve_held(zone, Time::clock::now() + 2 * options_.member_limit)) return;
  }
}

/// Rule 17. Zones in use are left for the next call: no operation waits for a clear.
void MirrorGroup::clear_idle(Time until) {
  const GateEntry inside{control_.read_gate(), Time::clock::now()};
  if (!inside || !control_.roles().may_acknowledge) return;
  for (std::uint32_t word = 0; word < bitmap_.marked().word_count(); ++word) {
    const std::uint64_t recent = recent_.take_word(word);
    std::uint64_t idle = bitmap_.marked().word(word) & ~recent;
    for (; idle != 0; idle &= idle - 1) {
      const std::uint32_t zone =
          word * kZonesOfWord + static_cast<std::uint32_t>(std::countr_zero(idle));
      if (Time::clock::now() >= until) return;
      ZoneLocks::Hold hold{*locks_};
      if (!hold.lock_zone(zone, Time::clock::now()) || unresolved_.has(zone)) continue;
      if (!bitmap_.clear(word, ZoneFlags::bit(zone), Time::clock::now() + options_.member_limit))
        return;
    }
  }
}

void MirrorGroup::steer() {
  static_cast<void>(control_.advance());
  control_.maintain([this] { return !unresolved_.any(); });
  control_.refresh();
}

void MirrorGroup::work_on_zones(bool clear, Time until) {
  // A copy would wait for the end of a change: for the store, if that does not answer.
  if (unresolved_.any() && control_.advance()) resolve_all(until);
  if (clear) clear_idle(until);
}

void MirrorGroup::maintain(bool clear) {
  work_on_zones(false, Time::max());
  steer();
  if (clear) clear_idle(Time::max());
}

}  // namespace remora::volume::detail
