/// A claimant: transaction, fences, adoption, repair. And how a client gets a grant again.

#include <algorithm>

#include "steps.h"

namespace remora::volume_model {

void Expander::claim_steps(const State& from, int x, Successors& to) const {
  const Writer& writer = from.writer[x];
  claim(from, x, to);
  if (writer.phase == Phase::kOut) return;
  if (writer.phase == Phase::kClaiming) {
    for (int m = 0; m < kMembers; ++m) fence(from, x, m, to);
    adopt(from, x, to);
    return;
  }
  if (writer.phase == Phase::kReadingBits) read_bits(from, x, to);
  if (rules_.late_fences)
    fence_again_steps(from, x, to);
  else
    reopen_step(from, x, to);
}

/// The transaction w -> w+1. Liveness keys lapse at any time, so any claim is as good as a steal.
void Expander::claim(const State& from, int x, Successors& to) const {
  const std::uint8_t highest = std::max({from.store.w, from.writer[0].w, from.writer[1].w});
  if (from.writer[x].w == from.store.w && from.writer[x].current) return;
  if (highest > rules_.claims) return;
  if (from.writer[x].phase == Phase::kClaiming && broken(Mutant::kFenceBeforeTransaction)) return;
  if (from.store.foreign && broken(Mutant::kHeaderBeforeFence) &&
      std::any_of(from.member.begin(), from.member.end(), [](const Member& member) {
        return holds_data(member.role) && (member.ahead || !member.exists);
      }))
    return;
  State& state = add_successor(from, {StepKind::kClaim, static_cast<std::int8_t>(x)}, to);
  Writer& writer = state.writer[x];
  writer = {};
  writer.phase = Phase::kClaiming;
  writer.current = true;
  writer.promoting = state.store.promoting;
  if (!broken(Mutant::kFenceBeforeTransaction)) {
    writer.w = state.store.w = highest + 1;
    if (state.store.snapshot == Snapshot::kTaken) state.store.snapshot = Snapshot::kOutdated;
  }
  writer.newer = state.store.snapshot == Snapshot::kOutdated;
  for (Member& member : state.member) {
    Side& side = member.side[x];
    side.role = member.role;
    side.done = side.old_primary = false;
    // What an earlier life of this client has posted may still take effect. While claiming,
    // kConfirmed is a grant of that life, and kObtained is one that this claim's fence returned.
    side.grant = pending(side) ? Grant::kConfirmed : Grant::kNone;
  }
}

/// Takes every older grant of the region away, the claimant's own too, and returns a new one.
void Expander::fence(const State& from, int x, int m, Successors& to) const {
  const Member& before = from.member[m];
  if (!holds_data(before.side[x].role) || !before.exists) return;
  if (before.side[x].grant == Grant::kObtained) return;
  State& state = add_successor(
      from, {StepKind::kFence, static_cast<std::int8_t>(x), static_cast<std::int8_t>(m)}, to);
  Member& member = state.member[m];
  if (!broken(Mutant::kNoFence)) {
    for (Side& side : member.side) take_away(side);
    member.reader_grant = false;
  }
  member.side[x].grant = Grant::kObtained;
  member.side[x].before_entry = false;
}

/// One transaction writes w into the group's key and removes what was not fenced. It compares what
/// the claimant has read, so it also confirms the grants.
void Expander::adopt(const State& from, int x, Successors& to) const {
  Configuration wanted;
  wanted.promoting = from.writer[x].promoting;
  int primary = -1;
  bool all = true;
  bool any = false;
  for (int m = 0; m < kMembers; ++m) {
    const Side& side = from.member[m].side[x];
    if (holds_data(side.role) && side.grant == Grant::kObtained) {
      any = true;
      wanted.role[m] = side.role;
      if (side.role == Role::kPrimary) primary = m;
    } else if (holds_data(side.role)) {
      all = false;
    } else if (side.role == Role::kSyncing && broken(Mutant::kKeepSyncing)) {
      wanted.role[m] = side.role;
    }
  }
  if (!any) return;
  if (from.store.foreign) {
    // After a restore of the store, each member has to be there and not ahead of it.
    if (!all && !broken(Mutant::kRestoreRemovesUnseen)) return;
    for (int m = 0; m < kMembers; ++m)
      if (wanted.role[m] != Role::kOut && from.member[m].ahead &&
          !broken(Mutant::kHeaderBeforeFence))
        return;
  }
  Step step{StepKind::kAdopt, static_cast<std::int8_t>(x)};
  if (primary >= 0) {
    transact(from, x, wanted, step, to);
    return;
  }
  wanted.promoting = true;
  for (int m = 0; m < kMembers; ++m) {
    if (wanted.role[m] != Role::kInSync) continue;
    Configuration with = wanted;
    with.role[m] = Role::kPrimary;
    step.member = static_cast<std::int8_t>(m);
    transact(from, x, with, step, to);
  }
}

/// The union of the bitmaps of the in-sync members says which zones may differ.
void Expander::read_bits(const State& from, int x, Successors& to) const {
  ZoneSet dirty = 0;
  for (int m = 0; m < kMembers; ++m) {
    if (!holds_data(from.member[m].side[x].role)) continue;
    if (!usable(from, x, m)) return;
    dirty |= from.member[m].bits;
  }
  State& state = add_successor(from, {StepKind::kReadBits, static_cast<std::int8_t>(x)}, to);
  Writer& writer = state.writer[x];
  writer.phase = Phase::kRepairing;
  writer.dirty = writer.marked = dirty;
  state.acting = std::max(state.acting, writer.w);
  advance(state, x);
}

/// Grants that were taken away, or went with a session, are opened again; this takes no other
/// client's grant away. Then the client confirms, and uses them only if it is still the writer.
/// Both are one step: a grant that is not confirmed has no effect on anything.
void Expander::reopen_step(const State& from, int x, Successors& to) const {
  const Writer& writer = from.writer[x];
  const bool confirmed = writer.w == from.store.w && writer.current;
  if (!confirmed && !broken(Mutant::kNoConfirmation)) return;
  bool any = false;
  State& state = add_successor(from, {StepKind::kReopen, static_cast<std::int8_t>(x)}, to);
  for (Member& member : state.member) {
    Side& side = member.side[x];
    if (side.role == Role::kOut || side.grant != Grant::kNone || !member.exists) continue;
    side.grant = Grant::kConfirmed;
    side.before_entry = false;
    any = true;
  }
  if (any)
    advance(state, x);
  else
    to.pop_back();
}

/// A serving writer's grant was taken away. The writer asks the store whether the claim is still
/// its own, fences the member, which also takes away what a late claimant has there, confirms, and
/// goes on. Another claim can come between any two of these.
void Expander::fence_again_steps(const State& from, int x, Successors& to) const {
  const Writer& writer = from.writer[x];
  const auto self = static_cast<std::int8_t>(x);
  const bool confirmed = writer.w == from.store.w && writer.current && !writer.frozen;
  for (int m = 0; m < kMembers; ++m) {
    const Member& before = from.member[m];
    const Grant grant = before.side[x].grant;
    if (!holds_data(before.side[x].role) || !before.exists) continue;
    const auto at = static_cast<std::int8_t>(m);
    if (grant == Grant::kNone && confirmed) {
      State& state = add_successor(from, {StepKind::kAskBeforeFence, self, at}, to);
      state.member[m].side[x].grant = Grant::kAsked;
    }
    if (grant == Grant::kAsked) {
      State& state = add_successor(from, {StepKind::kFenceAgain, self, at}, to);
      Member& member = state.member[m];
      for (Side& side : member.side) take_away(side);
      member.reader_grant = false;
      member.side[x].before_entry = false;
      member.side[x].grant = broken(Mutant::kUseFenced) ? Grant::kConfirmed : Grant::kObtained;
      if (broken(Mutant::kUseFenced)) advance(state, x);
    }
    if (grant == Grant::kObtained && confirmed) {
      State& state = add_successor(from, {StepKind::kUseFenced, self, at}, to);
      state.member[m].side[x].grant = Grant::kConfirmed;
      advance(state, x);
    }
  }
}

}  // namespace remora::volume_model
