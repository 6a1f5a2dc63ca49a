/// The invariants of a state, its first state, and what of a state is still of use.

#include <algorithm>

#include "steps.h"

namespace remora::volume_model {

namespace {

/// In the store's configuration, with its memory.
bool counts(const Member& member) { return holds_data(member.role) && member.exists; }

Invariant judge_zone(const State& state, const Rules& rules, int zone) {
  for (const Member& member : state.member) {
    if (!counts(member)) continue;
    const Value value = member.data[zone];
    if (value < state.acked[zone]) return Invariant::kV2;
    if (value < state.seen[zone]) return Invariant::kV4;
    for (const Member& other : state.member) {
      if (!counts(other)) continue;
      const bool readable =
          other.role == Role::kPrimary && !state.store.promoting && !rules.exclusive;
      if (readable && value < other.data[zone]) return Invariant::kV4;
      const ZoneSet bits = member.bits | other.bits;
      if (value != other.data[zone] && (bits & zone_bit(zone)) == 0) return Invariant::kV5;
    }
  }
  return Invariant::kNone;
}

}  // namespace

Invariant judge_state(const State& state, const Rules& rules) noexcept {
  if (state.store.foreign) return Invariant::kNone;  // not the configuration that was acted on
  for (int zone = 0; zone < kZones; ++zone) {
    const Invariant violated = judge_zone(state, rules, zone);
    if (violated != Invariant::kNone) return violated;
  }
  return Invariant::kNone;
}

std::string_view name_of(Invariant invariant) noexcept {
  constexpr std::array<std::string_view, 10> kNames{"none", "V1", "V2", "V3", "V4",
                                                    "V5",   "V6", "V7", "V8", "L"};
  return kNames[static_cast<std::size_t>(invariant)];
}

/// The first writer has claimed, adopted and repaired, and serves.
State Expander::first_state() const {
  State state;
  state.store.w = state.acting = 1;
  state.crashes_left = rules_.crashes;
  state.unknown_left = rules_.unknown;
  state.rebuilds_left = rules_.rebuilds;
  Writer& writer = state.writer[0];
  writer.w = 1;
  writer.phase = Phase::kServing;
  writer.current = true;
  writer.headers = rules_.restore;
  for (int m = 0; m < kMembers; ++m) {
    if (rules_.degraded && m != 0) continue;
    Member& member = state.member[m];
    member.exists = true;
    member.role = m == 0 ? Role::kPrimary : Role::kInSync;
    member.side[0].role = member.role;
    member.side[0].grant = Grant::kConfirmed;
    if (rules_.degraded) member.bits = zone_bit(0);
  }
  if (rules_.degraded) writer.marked = zone_bit(0);
  if (rules_.late_fences) {
    // The second client has claimed as w = 1, and the first one since, as w = 2.
    state.store.w = state.acting = state.writer[0].w = 2;
    Writer& late = state.writer[1];
    late.w = 1;
    late.phase = Phase::kClaiming;
    for (Member& member : state.member) member.side[1].role = member.role;
  }
  if (rules_.restore) {
    state.store.snapshot = Snapshot::kTaken;
    state.store.snapshot_w = state.store.w;
    for (Member& member : state.member) member.snapshot_role = member.role;
  }
  return state;
}

/// What a reader knows is of use until its confirmation expires. What it has seen matters where
/// it is newer than what was acknowledged.
void Expander::forget_reader(State& state) const {
  const bool goes_on = broken(Mutant::kReaderNeverConfirms) || state.reader_fresh;
  for (Member& member : state.member) {
    if (!goes_on) member.reader_primary = false;
    if (member.reader_primary) continue;
    member.reader_grant = false;
    member.removed_long = false;
  }
  for (int zone = 0; zone < kZones; ++zone)
    if (state.seen[zone] <= state.acked[zone]) state.seen[zone] = 0;
}

/// A region that no configuration names and no client can reach.
void Expander::forget_region(const State& state, Member& member) const {
  if (member.role != Role::kOut || member.reader_primary) return;
  if (rules_.restore && state.store.snapshot != Snapshot::kRestored) return;
  if (broken(Mutant::kSameRegion)) return;
  const bool known = std::any_of(member.side.begin(), member.side.end(),
                                 [](const Side& side) { return side.role != Role::kOut; });
  if (known) return;
  member.exists = false;
  member.data = {};
  member.bits = 0;
  for (Side& side : member.side) side = {};
}

/// A replaced writer without a grant can do nothing any more, but for fences that come late. These
/// take grants away only, and where a scenario has no fence again, a writer opens its grants again
/// as it does after the end of a session.
void Expander::forget_writer(State& state, int x) const {
  const Writer& writer = state.writer[x];
  const bool replaced = writer.w != state.store.w || (rules_.restore && !writer.current);
  if (!replaced || writer.w == 0) return;
  if (rules_.late_fences && writer.phase == Phase::kClaiming) return;
  if (broken(Mutant::kNoConfirmation) || broken(Mutant::kNoWriterCompare)) return;
  if (std::any_of(state.member.begin(), state.member.end(),
                  [x](const Member& member) { return member.side[x].grant != Grant::kNone; }))
    return;
  state.writer[x] = {};
  for (Member& member : state.member) member.side[x] = {};
}

void Expander::forget_dead(State& state) const {
  for (int x = 0; x < kWriters; ++x) {
    Writer& writer = state.writer[x];
    for (Member& member : state.member) {
      Side& side = member.side[x];
      if (side.role == Role::kOut && !pending(side)) side.grant = Grant::kNone;
      if (side.grant == Grant::kNone) {
        drop_pending(side);
        side.before_entry = false;
      }
      if (!writer.promoting || writer.waited) side.old_primary = false;
    }
    if (!writer.promoting) writer.waited = false;
    forget_writer(state, x);
    if (writer.work == Work::kNone || writer.stage == Stage::kComplete || !has_zone(writer.work))
      if (writer.work != Work::kWrite) writer.value = 0;
    if (writer.work == Work::kNone) {
      writer.stage = Stage::kMark;
      writer.zone = 0;
    }
  }
  if (!state.late.valid || !state.late.current) {
    state.late = {};
    for (Member& member : state.member) member.late_role = Role::kOut;
  }
  forget_reader(state);
  for (Member& member : state.member) forget_region(state, member);
}

}  // namespace remora::volume_model
