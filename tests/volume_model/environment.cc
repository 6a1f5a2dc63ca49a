/// What no writer decides: when an operation takes effect, what the reader does, time, losses.

#include <algorithm>

#include "steps.h"

namespace remora::volume_model {

void Expander::expand(const State& from, Successors& to) const {
  for (int x = 0; x < kWriters; ++x) {
    claim_steps(from, x, to);
    serving_steps(from, x, to);
    configuration_steps(from, x, to);
  }
  apply_late(from, to);
  delivery_steps(from, to);
  if (!rules_.exclusive && !rules_.without_reader) reader_steps(from, to);
  tick(from, to);
  crash_steps(from, to);
  if (rules_.restore) restore_steps(from, to);
}

void Expander::delivery_steps(const State& from, Successors& to) const {
  for (int m = 0; m < kMembers; ++m) {
    for (int x = 0; x < kWriters; ++x) {
      const Side& side = from.member[m].side[x];
      if (side.word != 0) deliver_word(from, x, m, to);
      for (int zone = 0; zone < kZones; ++zone)
        if (side.data[zone] != 0) deliver_data(from, x, m, zone, to);
    }
  }
}

/// V3 and V7, of an operation that takes effect now.
Invariant Expander::judge_delivery(const State& from, int x, int m) const {
  if (from.member[m].role == Role::kOut || from.store.foreign) return Invariant::kNone;
  if (from.member[m].side[x].before_entry) return Invariant::kV7;
  return from.writer[x].w < from.acting ? Invariant::kV3 : Invariant::kNone;
}

void Expander::deliver_data(const State& from, int x, int m, int zone, Successors& to) const {
  State& state = add_successor(from,
                               {StepKind::kDeliverData, static_cast<std::int8_t>(x),
                                static_cast<std::int8_t>(m), static_cast<std::int8_t>(zone)},
                               to);
  to.back().violated = judge_delivery(from, x, m);
  Side& side = state.member[m].side[x];
  const auto value = static_cast<Value>(side.data[zone] - 1);
  state.member[m].data[zone] = value;
  side.data[zone] = 0;
  const Writer& writer = state.writer[x];
  if (has_zone(writer.work) && writer.stage != Stage::kMark && writer.zone == zone &&
      writer.value == value && concerns(state, x, m)) {
    side.done = true;
    advance(state, x);
  }
}

void Expander::deliver_word(const State& from, int x, int m, Successors& to) const {
  State& state = add_successor(
      from, {StepKind::kDeliverWord, static_cast<std::int8_t>(x), static_cast<std::int8_t>(m)}, to);
  to.back().violated = judge_delivery(from, x, m);
  Side& side = state.member[m].side[x];
  const auto bits = static_cast<ZoneSet>(side.word - 1);
  state.member[m].bits = bits;
  side.word = 0;
  const Writer& writer = state.writer[x];
  if (writer.work == Work::kNone || writer.stage != Stage::kMark) return;
  if (bits == wanted_word(writer) && concerns(state, x, m)) side.done = true;
  advance(state, x);
}

/// One reader. It opens a grant at the primary, then confirms; both are one step, as for a writer.
/// A read is one step too: a read that takes longer returns what it would have returned at once,
/// or has to be confirmed again (README.md).
void Expander::reader_steps(const State& from, Successors& to) const {
  const bool readable = !from.store.promoting || broken(Mutant::kReadWhilePromoting);
  if (readable && (!from.store.foreign || broken(Mutant::kRestoreReads))) {
    State& state = add_successor(from, {StepKind::kReaderConfirm}, to);
    state.reader_fresh = true;
    for (Member& member : state.member) {
      member.reader_primary = member.role == Role::kPrimary;
      member.reader_grant = member.reader_primary && member.exists;
    }
  }
  for (int m = 0; m < kMembers; ++m) {
    const Member& before = from.member[m];
    if (!before.reader_primary || !before.exists) continue;
    if (!before.reader_grant && broken(Mutant::kNoConfirmation)) {
      State& state =
          add_successor(from, {StepKind::kReaderOpen, -1, static_cast<std::int8_t>(m)}, to);
      state.member[m].reader_grant = true;
    }
    if (!before.reader_grant) continue;
    if (!from.reader_fresh && !broken(Mutant::kReaderNeverConfirms)) continue;
    for (int zone = 0; zone < kZones; ++zone) read(from, m, zone, to);
  }
}

void Expander::read(const State& from, int m, int zone, Successors& to) const {
  State& state = add_successor(
      from, {StepKind::kRead, -1, static_cast<std::int8_t>(m), static_cast<std::int8_t>(zone)}, to);
  Invariant& violated = to.back().violated;
  const Value value = from.member[m].data[zone];
  if (value < std::max(from.acked[zone], from.seen[zone])) violated = Invariant::kLinearizable;
  if (from.member[m].role != Role::kPrimary && from.member[m].removed_long)
    violated = Invariant::kV6;
  if (from.store.foreign)
    for (const Member& member : from.member)
      if (holds_data(member.role) && member.ahead) violated = Invariant::kV8;
  state.seen[zone] = std::max(state.seen[zone], value);
}

/// T and the drift margin pass: every confirmation expires, and every wait that runs ends.
void Expander::tick(const State& from, Successors& to) const {
  State& state = add_successor(from, {StepKind::kTick}, to);
  bool changed = from.reader_fresh;
  state.reader_fresh = false;
  for (Writer& writer : state.writer) {
    changed = changed || writer.fresh || (writer.promoting && !writer.waited);
    writer.fresh = false;
    if (writer.promoting) writer.waited = true;
  }
  for (Member& member : state.member) {
    const bool long_ago = member.reader_primary && member.role != Role::kPrimary;
    changed = changed || (long_ago && !member.removed_long);
    member.removed_long = member.removed_long || long_ago;
  }
  if (!changed) to.pop_back();
}

/// A server loses its memory. It comes back at once, with a new memory id and no region.
void Expander::crash_steps(const State& from, Successors& to) const {
  if (from.crashes_left == 0) return;
  for (int m = 0; m < kMembers; ++m) {
    if (!from.member[m].exists) continue;
    State& state = add_successor(from, {StepKind::kCrash, -1, static_cast<std::int8_t>(m)}, to);
    --state.crashes_left;
    Member& member = state.member[m];
    member.exists = member.ahead = false;
    member.data = {};
    member.bits = 0;
    member.reader_grant = false;
    for (Side& side : member.side) {
      side.grant = Grant::kNone;
      drop_pending(side);
    }
  }
}

/// The snapshot was taken in the first state. Nothing tells the members, or a writer that asks
/// nothing of the store.
void Expander::restore_steps(const State& from, Successors& to) const {
  if (from.store.snapshot != Snapshot::kOutdated) return;
  State& state = add_successor(from, {StepKind::kRestore}, to);
  Configuration wanted;
  wanted.promoting = from.store.snapshot_promoting;
  for (int m = 0; m < kMembers; ++m) wanted.role[m] = from.member[m].snapshot_role;
  change_group(state, wanted);
  state.late = {};
  state.reader_fresh = false;  // the restored store is started T after the old one's last answer
  state.store.w = from.store.snapshot_w;
  state.store.foreign = true;
  state.store.snapshot = Snapshot::kRestored;
  state.store.snapshot_w = 0;
  state.store.snapshot_promoting = false;
  for (Member& member : state.member) member.snapshot_role = Role::kOut;
}

}  // namespace remora::volume_model
