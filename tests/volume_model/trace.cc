/// Counterexamples as text.

#include <sstream>

#include "search.h"

namespace remora::volume_model {

namespace {

char member_name(int m) { return static_cast<char>('A' + m); }

/// "A(primary) v1 v0 bits 10, B(in sync) ..." of the store's configuration and the memories.
std::string picture(const State& state) {
  std::ostringstream text;
  text << "w" << static_cast<int>(state.store.w) << (state.store.promoting ? " promoting" : "")
       << (state.store.foreign ? " restored" : "");
  for (int m = 0; m < kMembers; ++m) {
    const Member& member = state.member[m];
    constexpr std::array<const char*, 4> kRoles{"out", "syncing", "in sync", "primary"};
    text << "  " << member_name(m) << "=" << kRoles[static_cast<std::size_t>(member.role)];
    if (!member.exists) {
      text << "[no region]";
      continue;
    }
    text << "[v" << static_cast<int>(member.data[0]) << " v" << static_cast<int>(member.data[1])
         << " bits " << (member.bits & 1U) << (member.bits >> 1U) << (member.ahead ? " ahead" : "")
         << "]";
  }
  text << "  acked v" << static_cast<int>(state.acked[0]) << " v"
       << static_cast<int>(state.acked[1]) << "  read v" << static_cast<int>(state.seen[0]) << " v"
       << static_cast<int>(state.seen[1]);
  return text.str();
}

const char* action(StepKind kind) {
  switch (kind) {
    case StepKind::kClaim: return "claims the volume";
    case StepKind::kFence: return "fences";
    case StepKind::kAdopt: return "adopts the group, and removes what it has not fenced";
    case StepKind::kReadBits: return "reads the bitmaps, and begins to repair";
    case StepKind::kReopen: return "opens its grants again, and uses them";
    case StepKind::kAskBeforeFence: return "is told that the claim is its own, and fences next";
    case StepKind::kFenceAgain: return "fences again";
    case StepKind::kUseFenced: return "confirms, and uses what it has fenced again at";
    case StepKind::kStartWrite: return "begins a write";
    case StepKind::kAbandon: return "returns Indeterminate for its write";
    case StepKind::kSettle: return "has settled() at";
    case StepKind::kStartCopy:
      return "reads the primary, and begins to copy the zone to the backups";
    case StepKind::kStartClear: return "begins to clear the bit";
    case StepKind::kRemove: return "removes";
    case StepKind::kFenceOldPrimary: return "fences (or finds without its memory) the old primary";
    case StepKind::kEndPromotion: return "ends the promotion";
    case StepKind::kNonce: return "goes on after the unknown outcome";
    case StepKind::kWriteHeaders: return "writes the headers";
    case StepKind::kAddMember: return "adds a syncing member at";
    case StepKind::kGiveUpSyncing: return "sees a write to the syncing member fail";
    case StepKind::kStartRebuildCopy: return "begins to copy a zone to the syncing member";
    case StepKind::kStartCopyBits: return "begins to copy the bitmap to the syncing member";
    case StepKind::kMakeInSync: return "makes the syncing member in sync";
    case StepKind::kDeliverData: return "has data take effect at";
    case StepKind::kDeliverWord: return "has a bitmap word take effect at";
    case StepKind::kApplyLate: return "has its transaction of unknown outcome take effect";
    case StepKind::kReaderConfirm: return "confirms its configuration";
    case StepKind::kReaderOpen: return "opens a grant at";
    case StepKind::kRead: return "reads from";
    case StepKind::kOwnerConfirm: return "confirms its configuration, in order to read";
    case StepKind::kOwnerRead: return "reads from";
    case StepKind::kTick: return "time: T and the drift margin pass";
    case StepKind::kCrash: return "loses its memory:";
    case StepKind::kRestore: return "the store is restored from the snapshot";
  }
  return "?";
}

std::string subject(const Step& step) {
  if (step.writer >= 0) return step.writer == 0 ? "W1" : "W2";
  switch (step.kind) {
    case StepKind::kReaderConfirm:
    case StepKind::kReaderOpen:
    case StepKind::kRead: return "R ";
    case StepKind::kCrash: return "a server";
    default: return "  ";
  }
}

}  // namespace

std::string to_text(const Successor& successor) {
  const Step& step = successor.step;
  std::ostringstream text;
  text << subject(step) << " " << action(step.kind);
  if (step.kind == StepKind::kAdopt && step.member >= 0)
    text << "; the primary is " << member_name(step.member);
  else if (step.member >= 0)
    text << " " << member_name(step.member);
  if (step.zone >= 0) text << ", zone " << static_cast<int>(step.zone);
  if (step.unknown) text << " (outcome unknown)";
  return text.str();
}

std::string_view to_text(StepKind kind) { return action(kind); }

std::string to_text(const Counterexample& counterexample, const State& first) {
  std::ostringstream text;
  text << "   0 " << picture(first) << "\n";
  int number = 0;
  for (const Successor& step : counterexample.steps) {
    ++number;
    text << (number < 10 ? "   " : "  ") << number << " " << to_text(step) << "\n"
         << "       " << picture(step.state) << "\n";
  }
  text << "   => " << name_of(counterexample.violated) << " is violated\n";
  return text.str();
}

}  // namespace remora::volume_model
