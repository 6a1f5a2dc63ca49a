#pragma once

/// The steps of the protocol: from one state, every state that one step leads to.

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "rules.h"
#include "state.h"

namespace remora::volume_model {

enum class StepKind : std::uint8_t {
  kClaim,
  kFence,
  kAdopt,
  kReadBits,
  kReopen,
  kAskBeforeFence,
  kFenceAgain,
  kUseFenced,
  kStartWrite,
  kAbandon,
  kSettle,
  kStartCopy,
  kStartClear,
  kRemove,
  kFenceOldPrimary,
  kEndPromotion,
  kNonce,
  kWriteHeaders,
  kAddMember,
  kGiveUpSyncing,
  kStartRebuildCopy,
  kStartCopyBits,
  kMakeInSync,
  kDeliverData,
  kDeliverWord,
  kApplyLate,
  kReaderConfirm,
  kReaderOpen,
  kRead,
  kOwnerConfirm,
  kOwnerRead,
  kTick,
  kCrash,
  kRestore,
};
inline constexpr std::size_t kStepKinds = static_cast<std::size_t>(StepKind::kRestore) + 1;

struct Step {
  StepKind kind = StepKind::kTick;
  std::int8_t writer = -1;
  std::int8_t member = -1;
  std::int8_t zone = -1;
  bool unknown = false;  ///< a transaction whose answer does not reach its writer
};

struct Successor {
  State state;
  Step step;
  Invariant violated = Invariant::kNone;  ///< by the step itself
};

using Successors = std::vector<Successor>;

/// Makes the successors of one state. Holds no state of its own between calls.
class Expander {
 public:
  explicit Expander(const Rules& rules) noexcept : rules_(rules) {}

  [[nodiscard]] State first_state() const;
  /// Appends every state that one step leads to.
  void expand(const State& from, Successors& to) const;
  /// Clears fields that no later step can read, so that states which differ in them alone are one.
  void forget_dead(State& state) const;

 private:
  // invariants.cc
  void forget_reader(State& state) const;
  void forget_region(const State& state, Member& member) const;
  void forget_writer(State& state, int x) const;

  struct Configuration {
    Row<Role, kMembers> role{};
    bool promoting = false;
  };

  [[nodiscard]] bool broken(Mutant mutant) const noexcept { return rules_.mutant == mutant; }

  // advance.cc: what a writer does by itself, as soon as it can.
  void advance(State& state, int x) const;
  void finish(State& state, int x) const;
  bool acknowledge(State& state, int x) const;
  void repair_next(State& state, int x) const;
  void post(State& state, int x, int m) const;
  [[nodiscard]] bool concerns(const State& state, int x, int m) const;
  [[nodiscard]] Stage stage_after(const Writer& writer) const;
  void begin(State& state, int x, Work work, int zone, Value value) const;
  bool begin_copy(State& state, int x, Work work, int zone) const;
  void see_view(State& state, int x) const;

  // claim.cc: claims, fences, adoption, grants.
  void claim_steps(const State& from, int x, Successors& to) const;
  void claim(const State& from, int x, Successors& to) const;
  void fence(const State& from, int x, int m, Successors& to) const;
  void adopt(const State& from, int x, Successors& to) const;
  void read_bits(const State& from, int x, Successors& to) const;
  void reopen_step(const State& from, int x, Successors& to) const;
  void fence_again_steps(const State& from, int x, Successors& to) const;

  // write.cc: what a serving writer may begin.
  void serving_steps(const State& from, int x, Successors& to) const;
  void write_steps(const State& from, int x, int zone, Successors& to) const;
  void copy_step(const State& from, int x, int zone, Successors& to) const;
  void settle_steps(const State& from, int x, Successors& to) const;
  void headers_step(const State& from, int x, Successors& to) const;
  void owner_read_steps(const State& from, int x, Successors& to) const;

  // configuration.cc: transactions on the group.
  void configuration_steps(const State& from, int x, Successors& to) const;
  void remove_steps(const State& from, int x, Successors& to) const;
  void promotion_steps(const State& from, int x, Successors& to) const;
  void rebuild_steps(const State& from, int x, Successors& to) const;
  void add_member(const State& from, int x, int m, Successors& to) const;
  void nonce(const State& from, int x, Successors& to) const;
  void transact(const State& from, int x, const Configuration& wanted, Step step,
                Successors& to) const;
  void change_group(State& state, const Configuration& wanted) const;
  void apply_late(const State& from, Successors& to) const;

  // environment.cc: deliveries, the reader, time, losses.
  void delivery_steps(const State& from, Successors& to) const;
  void deliver_data(const State& from, int x, int m, int zone, Successors& to) const;
  void deliver_word(const State& from, int x, int m, Successors& to) const;
  [[nodiscard]] Invariant judge_delivery(const State& from, int x, int m) const;
  void reader_steps(const State& from, Successors& to) const;
  void read(const State& from, int m, int zone, Successors& to) const;
  void tick(const State& from, Successors& to) const;
  void crash_steps(const State& from, Successors& to) const;
  void restore_steps(const State& from, Successors& to) const;

  Rules rules_;
};

/// Appends a copy of `from` and returns it, to be changed by the step.
State& add_successor(const State& from, Step step, Successors& to);

/// Invariants of a state by itself: V2, V4, V5.
[[nodiscard]] Invariant judge_state(const State& state, const Rules& rules) noexcept;

// Questions that several files ask.
[[nodiscard]] int primary_known_to(const State& state, int x) noexcept;  ///< -1: none
[[nodiscard]] bool pending_in_zone(const State& state, int x, int zone) noexcept;
/// Where the writer could write now: the region exists and its grant is confirmed.
[[nodiscard]] bool usable(const State& state, int x, int m) noexcept;
[[nodiscard]] bool has_syncing(const State& state, int x) noexcept;
/// The word that a marking or clearing writer wants on its members.
[[nodiscard]] ZoneSet wanted_word(const Writer& writer) noexcept;

}  // namespace remora::volume_model
