/// What a writer does without waiting for anything: it posts to each member that its stage needs,
/// goes to the next stage when all have completed, and acknowledges.
///
/// A writer learns only by its own steps, and what it posts takes effect at any later time. So a
/// writer that posts at once can do everything that a slower one can.

#include <algorithm>

#include "steps.h"

namespace remora::volume_model {

State& add_successor(const State& from, Step step, Successors& to) {
  to.push_back({from, step, Invariant::kNone});
  return to.back().state;
}

int primary_known_to(const State& state, int x) noexcept {
  for (int m = 0; m < kMembers; ++m)
    if (state.member[m].side[x].role == Role::kPrimary) return m;
  return -1;
}

bool pending_in_zone(const State& state, int x, int zone) noexcept {
  return std::any_of(state.member.begin(), state.member.end(), [&](const Member& member) {
    const Side& side = member.side[x];
    return side.role != Role::kOut && side.data[zone] != 0;
  });
}

bool usable(const State& state, int x, int m) noexcept {
  return state.member[m].exists && state.member[m].side[x].grant == Grant::kConfirmed;
}

bool has_syncing(const State& state, int x) noexcept {
  return std::any_of(state.member.begin(), state.member.end(),
                     [x](const Member& member) { return member.side[x].role == Role::kSyncing; });
}

ZoneSet wanted_word(const Writer& writer) noexcept {
  return writer.work == Work::kWrite ? writer.marked | zone_bit(writer.zone) : writer.marked;
}

bool Expander::concerns(const State& state, int x, int m) const {
  const Writer& writer = state.writer[x];
  const Role role = state.member[m].side[x].role;
  if (role == Role::kOut || (role == Role::kSyncing && writer.spoiled)) return false;
  if (writer.stage == Stage::kComplete) return false;
  if (writer.work == Work::kRebuildCopy || writer.work == Work::kCopyBits)
    return role == Role::kSyncing;
  switch (writer.stage) {
    case Stage::kMark: return true;
    case Stage::kBackups:
      return role != Role::kPrimary || (rules_.exclusive && writer.work == Work::kWrite);
    case Stage::kPrimary: return role == Role::kPrimary;
    case Stage::kComplete: break;
  }
  return false;
}

Stage Expander::stage_after(const Writer& writer) const {
  if (writer.work != Work::kWrite) return Stage::kComplete;
  const bool primary_first = broken(Mutant::kPrimaryFirst);
  const bool mark_last =
      broken(Mutant::kMarkAfterWrite) && (writer.marked & zone_bit(writer.zone)) == 0;
  const Stage after_data = mark_last ? Stage::kMark : Stage::kComplete;
  switch (writer.stage) {
    case Stage::kMark:
      if (broken(Mutant::kMarkAfterWrite)) return Stage::kComplete;
      return primary_first ? Stage::kPrimary : Stage::kBackups;
    case Stage::kBackups: return primary_first || rules_.exclusive ? after_data : Stage::kPrimary;
    case Stage::kPrimary: return primary_first ? Stage::kBackups : after_data;
    case Stage::kComplete: break;
  }
  return Stage::kComplete;
}

void Expander::begin(State& state, int x, Work work, int zone, Value value) const {
  Writer& writer = state.writer[x];
  writer.work = work;
  writer.zone = static_cast<std::uint8_t>(zone);
  writer.value = value;
  const bool words = work == Work::kClear || work == Work::kCopyBits;
  writer.stage = words ? Stage::kMark : Stage::kBackups;
  if (work == Work::kWrite) {
    const bool marked = (writer.marked & zone_bit(zone)) != 0;
    if (!marked && !broken(Mutant::kMarkAfterWrite))
      writer.stage = Stage::kMark;
    else if (broken(Mutant::kPrimaryFirst))
      writer.stage = Stage::kPrimary;
  }
  for (Member& member : state.member) member.side[x].done = false;
}

/// Reads the zone from the primary, and begins to write it to the others. False: no primary.
bool Expander::begin_copy(State& state, int x, Work work, int zone) const {
  const int primary = primary_known_to(state, x);
  if (primary < 0 || !usable(state, x, primary)) return false;
  if (pending_in_zone(state, x, zone)) return false;
  begin(state, x, work, zone, state.member[primary].data[zone]);
  return true;
}

void Expander::post(State& state, int x, int m) const {
  const Writer& writer = state.writer[x];
  Member& member = state.member[m];
  Side& side = member.side[x];
  const bool late = broken(Mutant::kHeaderBeforeAnswer);
  if (rules_.restore && !writer.headers && !late) return;  // the headers come first
  if (writer.stage != Stage::kMark) {
    if (side.data[writer.zone] == 0)
      side.data[writer.zone] = static_cast<std::uint8_t>(1 + writer.value);
  } else if (side.word == 0) {
    side.word = static_cast<std::uint8_t>(1 + wanted_word(writer));
  } else if (broken(Mutant::kTwoWordsInFlight) && side.word != 1 + wanted_word(writer)) {
    member.bits = wanted_word(writer);  // the newer of the two takes effect first
    side.done = true;
  }
}

void Expander::advance(State& state, int x) const {
  Writer& writer = state.writer[x];
  while (true) {
    if (writer.work == Work::kNone) {
      if (writer.phase == Phase::kRepairing) repair_next(state, x);
      if (writer.work == Work::kNone) return;
    }
    bool all = true;
    for (int m = 0; m < kMembers; ++m) {
      if (!concerns(state, x, m) || state.member[m].side[x].done) continue;
      if (usable(state, x, m)) post(state, x, m);
      all = all && state.member[m].side[x].done;
    }
    if (!all) return;
    if (writer.stage != Stage::kComplete) {
      const Stage before = writer.stage;
      writer.stage = stage_after(writer);
      if (before == Stage::kMark && writer.work == Work::kWrite)
        writer.marked |= zone_bit(writer.zone);
      if (before == Stage::kMark || writer.stage == Stage::kMark)
        for (Member& member : state.member) member.side[x].done = false;
      continue;
    }
    if (writer.work == Work::kWrite && !acknowledge(state, x)) return;
    finish(state, x);
  }
}

bool Expander::acknowledge(State& state, int x) const {
  const Writer& writer = state.writer[x];
  if (writer.promoting || writer.frozen) return false;
  if (rules_.restore && !writer.headers) return false;
  Value& acked = state.acked[writer.zone];
  acked = std::max(acked, writer.value);
  return true;
}

void Expander::finish(State& state, int x) const {
  Writer& writer = state.writer[x];
  const ZoneSet bit = zone_bit(writer.zone);
  switch (writer.work) {
    case Work::kCopy:
      writer.unresolved &= static_cast<ZoneSet>(~bit);
      writer.dirty &= static_cast<ZoneSet>(~bit);
      break;
    case Work::kRebuildCopy: writer.copied |= bit; break;
    case Work::kCopyBits: writer.bits_copied = true; break;
    case Work::kClear:
      if (writer.phase == Phase::kRepairing) writer.phase = Phase::kServing;
      break;
    case Work::kNone:
    case Work::kWrite: break;
  }
  writer.work = Work::kNone;
  for (Member& member : state.member) member.side[x].done = false;
}

/// When a claimant has copied each dirty zone, it clears the bitmap, then it serves.
void Expander::repair_next(State& state, int x) const {
  Writer& writer = state.writer[x];
  if (writer.dirty != 0) return;
  if (writer.marked == 0) {
    writer.phase = Phase::kServing;
    return;
  }
  writer.marked = 0;
  begin(state, x, Work::kClear, 0, 0);
}

/// The writer's configuration has become the store's.
void Expander::see_view(State& state, int x) const {
  Writer& writer = state.writer[x];
  const int primary = primary_known_to(state, x);
  // Readers read the primary of a configuration that was not promoting. One that is removed while
  // promoting was never read, and the wait for the one before it goes on.
  const bool begins = state.store.promoting && !writer.promoting;
  if (begins) writer.waited = false;
  writer.promoting = state.store.promoting;
  writer.current = true;
  writer.headers = false;
  writer.newer = state.store.snapshot == Snapshot::kOutdated;
  for (int m = 0; m < kMembers; ++m) {
    Side& side = state.member[m].side[x];
    const Role role = state.member[m].role;
    const bool was_primary = m == primary && role != Role::kPrimary;
    if (begins) side.old_primary = was_primary;
    if (was_primary && broken(Mutant::kFenceLastPrimary)) side.old_primary = true;
    if (side.role != Role::kOut && role == Role::kOut) side.done = false;
    side.role = role;
  }
  const bool moved = primary >= 0 && primary != primary_known_to(state, x);
  const bool syncing = has_syncing(state, x);
  if (!syncing) {
    writer.copied = 0;
    writer.bits_copied = writer.spoiled = false;
  }
  const bool for_syncing = writer.work == Work::kRebuildCopy || writer.work == Work::kCopyBits;
  if ((for_syncing && !syncing) || (moved && has_zone(writer.work) && writer.work != Work::kWrite))
    writer.work = Work::kNone;  // a copy begins again, from the primary of now
}

}  // namespace remora::volume_model
