/// Transactions on the group's key: removal, promotion, rebuild, and unknown outcomes.

#include <algorithm>

#include "steps.h"

namespace remora::volume_model {

namespace {

Row<Role, kMembers> roles_known_to(const State& state, int x) {
  Row<Role, kMembers> roles{};
  for (int m = 0; m < kMembers; ++m) roles[m] = state.member[m].side[x].role;
  return roles;
}

/// In the writer's knowledge.
bool removed(const State& state, int x, int m) {
  return state.member[m].side[x].role == Role::kOut;
}

}  // namespace

void Expander::configuration_steps(const State& from, int x, Successors& to) const {
  const Writer& writer = from.writer[x];
  if (writer.frozen) nonce(from, x, to);
  if (writer.phase < Phase::kReadingBits) return;
  if (!writer.frozen) remove_steps(from, x, to);
  promotion_steps(from, x, to);
  if (writer.phase == Phase::kServing && !writer.frozen) rebuild_steps(from, x, to);
}

/// A member that does not answer is removed. A member that is only slow may be removed too: the
/// writer cannot tell.
void Expander::remove_steps(const State& from, int x, Successors& to) const {
  const Row<Role, kMembers> roles = roles_known_to(from, x);
  const auto in_sync = std::count_if(roles.begin(), roles.end(), holds_data);
  for (int m = 0; m < kMembers; ++m) {
    if (roles[m] == Role::kOut) continue;
    if (holds_data(roles[m]) && in_sync == 1) continue;
    Configuration wanted{roles, from.writer[x].promoting};
    wanted.role[m] = Role::kOut;
    const Step step{StepKind::kRemove, static_cast<std::int8_t>(x), static_cast<std::int8_t>(m)};
    if (roles[m] != Role::kPrimary) {
      transact(from, x, wanted, step, to);
      continue;
    }
    wanted.promoting = true;
    for (int next = 0; next < kMembers; ++next) {
      if (wanted.role[next] != Role::kInSync) continue;
      Configuration with = wanted;
      with.role[next] = Role::kPrimary;
      transact(from, x, with, step, to);
    }
  }
}

/// A promotion ends when nothing that was in flight is unresolved, and no reader can still read
/// the old primary.
void Expander::promotion_steps(const State& from, int x, Successors& to) const {
  const Writer& writer = from.writer[x];
  if (!writer.promoting) return;
  const auto self = static_cast<std::int8_t>(x);
  for (int m = 0; m < kMembers; ++m) {
    const Member& before = from.member[m];
    if (!before.side[x].old_primary || writer.waited) continue;  // lost memory: nothing to fence
    State& state =
        add_successor(from, {StepKind::kFenceOldPrimary, self, static_cast<std::int8_t>(m)}, to);
    for (Side& side : state.member[m].side) take_away(side);
    state.member[m].reader_grant = false;
    state.writer[x].waited = true;
  }
  if (writer.phase != Phase::kServing || writer.frozen) return;
  if (rules_.restore && !writer.headers && !broken(Mutant::kHeaderBeforeAnswer)) return;
  if (!writer.waited && !broken(Mutant::kNoWait)) return;
  if (writer.unresolved != 0 && !broken(Mutant::kEndUnresolved)) return;
  if (has_zone(writer.work) && writer.stage != Stage::kComplete) return;
  transact(from, x, {roles_known_to(from, x), false}, {StepKind::kEndPromotion, self}, to);
}

void Expander::rebuild_steps(const State& from, int x, Successors& to) const {
  const Writer& writer = from.writer[x];
  const auto self = static_cast<std::int8_t>(x);
  if (!has_syncing(from, x)) {
    if (writer.work != Work::kNone || writer.promoting) return;
    for (int m = 0; m < kMembers; ++m)
      if (removed(from, x, m)) add_member(from, x, m, to);
    return;
  }
  if (!writer.spoiled) {
    State& state = add_successor(from, {StepKind::kGiveUpSyncing, self}, to);
    state.writer[x].spoiled = true;
    advance(state, x);
  }
  const bool spoiled = writer.spoiled && !broken(Mutant::kPromoteSpoiled);
  if (writer.work != Work::kNone || spoiled) return;
  for (int zone = 0; zone < kZones; ++zone) {
    if ((writer.copied & zone_bit(zone)) != 0) continue;
    State& state = add_successor(
        from, {StepKind::kStartRebuildCopy, self, -1, static_cast<std::int8_t>(zone)}, to);
    if (begin_copy(state, x, Work::kRebuildCopy, zone))
      advance(state, x);
    else
      to.pop_back();
  }
  if (writer.copied != zone_bit(kZones) - 1) return;
  const bool with_bits = !broken(Mutant::kBitmapNotCopied);
  if (with_bits && !writer.bits_copied) {
    State& state = add_successor(from, {StepKind::kStartCopyBits, self}, to);
    begin(state, x, Work::kCopyBits, 0, 0);
    advance(state, x);
    return;
  }
  Configuration wanted{roles_known_to(from, x), writer.promoting};
  for (Role& role : wanted.role)
    if (role == Role::kSyncing) role = Role::kInSync;
  transact(from, x, wanted, {StepKind::kMakeInSync, self}, to);
}

/// A new region at a server that has no part in the group, then the transaction that names it.
void Expander::add_member(const State& from, int x, int m, Successors& to) const {
  const bool same = broken(Mutant::kSameRegion);
  if (from.rebuilds_left == 0 || (same && !from.member[m].exists)) return;
  Configuration wanted{roles_known_to(from, x), false};
  wanted.role[m] = Role::kSyncing;
  const auto size = to.size();
  transact(from, x, wanted,
           {StepKind::kAddMember, static_cast<std::int8_t>(x), static_cast<std::int8_t>(m)}, to);
  if (to.size() == size) return;
  State& state = to.back().state;
  --state.rebuilds_left;
  Member& member = state.member[m];
  if (same) {
    for (int y = 0; y < kWriters; ++y)
      if (y != x) member.side[y].before_entry = member.side[y].grant != Grant::kNone;
  } else {
    member.exists = true;
    member.ahead = member.removed_long = false;
    member.data = {};
    member.bits = 0;
    member.reader_grant = false;
    for (Side& side : member.side) {
      side.grant = Grant::kNone;
      drop_pending(side);
    }
  }
  member.side[x].grant = Grant::kConfirmed;
}

/// One transaction on the group's key. It takes effect if the key is the one that the writer has
/// read, and if the writer is still the volume's. A second successor: the answer is lost.
void Expander::transact(const State& from, int x, const Configuration& wanted, Step step,
                        Successors& to) const {
  const Writer& before = from.writer[x];
  if (!before.current || before.frozen) return;
  const bool claims = before.w == 0;  // only where a claimant fences before its transaction
  if (claims && from.store.w > rules_.claims) return;
  const bool owns = claims || before.w == from.store.w;
  if (!owns && !broken(Mutant::kNoWriterCompare)) return;
  if (from.unknown_left != 0 && !from.late.valid && step.kind != StepKind::kAddMember && !claims) {
    Step lost = step;
    lost.unknown = true;
    State& state = add_successor(from, lost, to);
    --state.unknown_left;
    state.writer[x].frozen = true;
    state.late = {true, wanted.promoting, true, static_cast<std::uint8_t>(x)};
    for (int m = 0; m < kMembers; ++m) state.member[m].late_role = wanted.role[m];
  }
  State& state = add_successor(from, step, to);
  if (!owns) to.back().violated = Invariant::kV1;
  Writer& writer = state.writer[x];
  if (claims) writer.w = ++state.store.w;
  if (step.kind == StepKind::kAdopt) {
    for (const Member& member : state.member)
      if (state.store.foreign && holds_data(member.role) && member.ahead)
        to.back().violated = Invariant::kV8;
    state.store.foreign = false;
  }
  change_group(state, wanted);
  see_view(state, x);
  if (step.kind == StepKind::kAdopt) {
    writer.phase = Phase::kReadingBits;
    writer.waited = false;
    for (Member& member : state.member)
      if (member.side[x].grant == Grant::kObtained) member.side[x].grant = Grant::kConfirmed;
    return;
  }
  advance(state, x);
}

/// The store's part of a transaction that has taken effect.
void Expander::change_group(State& state, const Configuration& wanted) const {
  for (int m = 0; m < kMembers; ++m) {
    Member& member = state.member[m];
    if (member.role != Role::kOut && wanted.role[m] == Role::kOut) member.removed_long = false;
    member.role = wanted.role[m];
  }
  state.store.promoting = wanted.promoting;
  if (state.store.snapshot == Snapshot::kTaken) state.store.snapshot = Snapshot::kOutdated;
  for (Writer& writer : state.writer) writer.current = false;
  state.late.current = false;
}

/// A frozen writer changes the group's key, so that its lost transaction cannot apply any more;
/// or it finds that the transaction has applied.
void Expander::nonce(const State& from, int x, Successors& to) const {
  const Writer& before = from.writer[x];
  if (before.w != from.store.w) return;
  State& state = add_successor(from, {StepKind::kNonce, static_cast<std::int8_t>(x)}, to);
  Writer& writer = state.writer[x];
  writer.frozen = false;
  if (!broken(Mutant::kNoNonce)) state.late = {};
  if (!before.current) {
    see_view(state, x);
  } else if (!broken(Mutant::kNoNonce)) {
    for (Writer& other : state.writer) other.current = false;
    writer.current = true;
  }
  advance(state, x);
}

/// A transaction whose writer gave up waiting reaches the store after all.
void Expander::apply_late(const State& from, Successors& to) const {
  if (!from.late.valid) return;
  const Writer& author = from.writer[from.late.author];
  if (!from.late.current || author.w != from.store.w) return;
  State& state =
      add_successor(from, {StepKind::kApplyLate, static_cast<std::int8_t>(from.late.author)}, to);
  Configuration wanted;
  wanted.promoting = from.late.promoting;
  for (int m = 0; m < kMembers; ++m) wanted.role[m] = from.member[m].late_role;
  change_group(state, wanted);
  state.late = {};
}

}  // namespace remora::volume_model
