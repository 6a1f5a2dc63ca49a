/// What a writer begins while it serves: writes, repairs of zones, clearing, its own reads.

#include <algorithm>

#include "steps.h"

namespace remora::volume_model {

void Expander::serving_steps(const State& from, int x, Successors& to) const {
  const Writer& writer = from.writer[x];
  if (writer.phase < Phase::kReadingBits) return;
  settle_steps(from, x, to);
  const ZoneSet to_copy = writer.phase == Phase::kRepairing ? writer.dirty : writer.unresolved;
  for (int zone = 0; zone < kZones; ++zone)
    if ((to_copy & zone_bit(zone)) != 0) copy_step(from, x, zone, to);
  if (writer.phase != Phase::kServing) return;
  for (int zone = 0; zone < kZones; ++zone) write_steps(from, x, zone, to);
  headers_step(from, x, to);
  owner_read_steps(from, x, to);
}

void Expander::write_steps(const State& from, int x, int zone, Successors& to) const {
  const Writer& writer = from.writer[x];
  const ZoneSet bit = zone_bit(zone);
  const auto self = static_cast<std::int8_t>(x);
  const auto at = static_cast<std::int8_t>(zone);
  if (writer.work == Work::kWrite && writer.zone == zone) {
    // The caller gets Indeterminate. What was posted may still take effect.
    State& state = add_successor(from, {StepKind::kAbandon, self, -1, at}, to);
    state.writer[x].unresolved |= bit;
    state.writer[x].work = Work::kNone;
    for (Member& member : state.member) member.side[x].done = false;
    return;
  }
  if (writer.work != Work::kNone || writer.frozen) return;
  const bool overlaps = pending_in_zone(from, x, zone);
  if (from.written < rules_.writes && !overlaps) {
    State& state = add_successor(from, {StepKind::kStartWrite, self, -1, at}, to);
    begin(state, x, Work::kWrite, zone, ++state.written);
    advance(state, x);
  }
  const bool unresolved = (writer.unresolved & bit) != 0;
  const bool may_clear = broken(Mutant::kClearUnresolved) ||
                         (broken(Mutant::kSettledIsEqual) && !overlaps) ||
                         (!unresolved && !overlaps);
  if ((writer.marked & bit) != 0 && may_clear) {
    State& state = add_successor(from, {StepKind::kStartClear, self, -1, at}, to);
    state.writer[x].marked &= static_cast<ZoneSet>(~bit);
    begin(state, x, Work::kClear, 0, 0);
    advance(state, x);
  }
}

/// Makes a zone equal on all members: in a claimant's repair, and after an Indeterminate.
void Expander::copy_step(const State& from, int x, int zone, Successors& to) const {
  if (from.writer[x].work != Work::kNone || from.writer[x].frozen) return;
  State& state = add_successor(
      from, {StepKind::kStartCopy, static_cast<std::int8_t>(x), -1, static_cast<std::int8_t>(zone)},
      to);
  if (begin_copy(state, x, Work::kCopy, zone))
    advance(state, x);
  else
    to.pop_back();
}

/// The session was resumed: what was posted before and has not taken effect never will.
void Expander::settle_steps(const State& from, int x, Successors& to) const {
  const Writer& writer = from.writer[x];
  for (int m = 0; m < kMembers; ++m) {
    const Side& before = from.member[m].side[x];
    if (before.role == Role::kOut) continue;
    const bool works = writer.work != Work::kNone && concerns(from, x, m) && !before.done;
    Side after = before;
    for (int zone = 0; zone < kZones; ++zone)
      if (!works || writer.stage == Stage::kMark || writer.zone != zone) after.data[zone] = 0;
    if (!works || writer.stage != Stage::kMark || after.word != 1 + wanted_word(writer))
      after.word = 0;
    if (after.data == before.data && after.word == before.word) continue;
    State& state = add_successor(
        from, {StepKind::kSettle, static_cast<std::int8_t>(x), static_cast<std::int8_t>(m)}, to);
    state.member[m].side[x] = after;
    advance(state, x);
  }
}

/// Each member's header says under which (w, e) it is written, before the first acknowledgement.
void Expander::headers_step(const State& from, int x, Successors& to) const {
  if (!rules_.restore || from.writer[x].headers) return;
  for (int m = 0; m < kMembers; ++m)
    if (from.member[m].side[x].role != Role::kOut && !usable(from, x, m)) return;
  State& state = add_successor(from, {StepKind::kWriteHeaders, static_cast<std::int8_t>(x)}, to);
  state.writer[x].headers = true;
  for (Member& member : state.member)
    if (member.side[x].role != Role::kOut && state.writer[x].newer) member.ahead = true;
  advance(state, x);
}

/// With `exclusive` only the claimed writer reads: confirmed as a reader is, and never a zone of
/// which it does not know that all members have the same bytes.
void Expander::owner_read_steps(const State& from, int x, Successors& to) const {
  if (!rules_.exclusive) return;
  const Writer& writer = from.writer[x];
  const auto self = static_cast<std::int8_t>(x);
  if (!writer.fresh && writer.w == from.store.w && writer.current) {
    State& state = add_successor(from, {StepKind::kOwnerConfirm, self}, to);
    state.writer[x].fresh = true;
  }
  const int primary = primary_known_to(from, x);
  if (!writer.fresh || writer.promoting || primary < 0 || !usable(from, x, primary)) return;
  for (int zone = 0; zone < kZones; ++zone) {
    const bool unresolved = (writer.unresolved & zone_bit(zone)) != 0;
    if (unresolved && !broken(Mutant::kReadUnresolved)) continue;
    if (writer.work == Work::kWrite && writer.zone == zone) continue;
    const Value value = from.member[primary].data[zone];
    State& state = add_successor(from,
                                 {StepKind::kOwnerRead, self, static_cast<std::int8_t>(primary),
                                  static_cast<std::int8_t>(zone)},
                                 to);
    if (value < std::max(from.acked[zone], from.seen[zone]))
      to.back().violated = Invariant::kLinearizable;
    state.seen[zone] = std::max(state.seen[zone], value);
  }
}

}  // namespace remora::volume_model
