#pragma once

/// The configuration of one group, as its claimed writer changes it.

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <remora/engine/types.h>
#include <remora/mutex.h>
#include <remora/result.h>
#include <remora/volume/records.h>

#include "group_key.h"
#include "group_roles.h"
#include "member_header.h"
#include "member_opener.h"
#include "member_slots.h"
#include "mirror_options.h"
#include "operation_gate.h"
#include "promotion_wait.h"

namespace remora::volume::detail {

/// Rules 1, 2, 4, 18 to 22 and 27 of engine/docs/volumes.md: transactions, grants that have ended,
/// removal, promotion, headers. The data path asks roles(), one atomic load; everything else takes
/// the mutex of the group, which is held while the store or a member is asked, but not between two
/// tries. Thread-safe.
class GroupControl {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// Of a group that this writer has adopted: `key` has its configuration, `members` are in the
  /// order of its members. `options` and `opener` are borrowed.
  GroupControl(GroupKey key, const std::vector<std::shared_ptr<MirrorMember>>& members,
               const MirrorOptions& options, MemberOpener& opener);

  [[nodiscard]] GroupRoles roles() const noexcept { return roles_.load(std::memory_order_acquire); }
  [[nodiscard]] const MemberSlots& slots() const noexcept { return slots_; }
  /// Writes enter it. It is closed while the group is promoting or frozen.
  [[nodiscard]] OperationGate& gate() noexcept { return gate_; }
  /// Reads, and copies of zones, enter this one. It is closed while a member comes in.
  [[nodiscard]] OperationGate& read_gate() noexcept { return read_gate_; }
  /// Members with an operation of unknown outcome.
  [[nodiscard]] MemberSet unsettled() const noexcept {
    return MemberSet::from_bits(unsettled_.load(std::memory_order_acquire));
  }
  [[nodiscard]] GroupRecord record() const;
  /// kRdma if any member is over rdma, else that of all members.
  [[nodiscard]] TransportKind transport() const;
  [[nodiscard]] bool lost() const;

  /// After operations on members have failed, as `outcomes` says. Ok: the operation may go on, with
  /// the members that there are then. Errors: that of a member, if it is one of this process, or
  /// if no member in sync is left; those of the store; kTimedOut.
  Status members_failed(MemberSet failed, const MemberSlots::Outcomes& outcomes, Time until);
  Status member_failed(std::size_t slot, const Error& error, Time until);
  /// Waits until none of these members has an operation of unknown outcome; one that cannot tell is
  /// removed. Errors: as member_failed().
  Status settle(MemberSet members, Time until);
  /// Ends a freeze, removes failed members, writes headers: until operations may be posted. Errors:
  /// as member_failed().
  Status converge(Time until);
  /// Waits until writes may be acknowledged, or (reads) until the group is not promoting. Errors:
  /// kTimedOut; VolumeClaim::lost_error().
  Status await_acknowledgement(Time until);
  Status await_readable(Time until);

  /// Counts configurations.
  [[nodiscard]] std::uint64_t changes() const noexcept {
    return changes_.load(std::memory_order_acquire);
  }
  /// Rule 23: whether the present configuration was confirmed by a request that was sent less than
  /// T ago.
  [[nodiscard]] bool is_confirmed() const noexcept;
  /// Confirms it now, unless another thread just has. Errors: those of the store and of the claim;
  /// kTimedOut: the turn of this thread came after `until`.
  Status confirm(Time until);
  /// So that maintain() confirms it again in time.
  void note_read() noexcept {
    if (!read_since_.load(std::memory_order_relaxed))
      read_since_.store(true, std::memory_order_relaxed);
  }

  // For the thread that maintains the group. These three wait for no other thread: while one asks
  // the store or a member, they do nothing.
  /// A few steps of converge(). False: more are needed, or the claim is lost.
  bool advance();
  /// Takes a member out that has missed a write while it was built; ends a promotion, if rule 20
  /// allows it. `nothing_unresolved`: whether no zone is.
  void maintain(const std::function<bool()>& nothing_unresolved);
  /// Confirms the configuration if it was read since the last confirmation, and T / 3 has passed.
  void refresh();
  /// Rule 25. `member` has a region that was just created. Errors of this and the next two: those
  /// of group_changes.h, as member_failed(), kBusy; kIndeterminate: the transaction may still
  /// apply.
  Status add_syncing(const Member& member, Time until);
  /// Rule 26: its data and bitmap were copied.
  Status make_in_sync(Time until);
  Status remove_member(const std::string& region, Time until);

 private:
  /// After each call of the key: takes over its configuration.
  void update() REMORA_REQUIRES(mutex_);
  void begin_promotion() REMORA_REQUIRES(mutex_);
  Status change(const Result<GroupRecord>& next) REMORA_REQUIRES(mutex_);
  Status thaw() REMORA_REQUIRES(mutex_);
  [[nodiscard]] bool converged() const REMORA_REQUIRES(mutex_) {
    return !key_.frozen() && failed_.empty() && headers_;
  }
  /// What comes next until the group has converged. Only then.
  Status step() REMORA_REQUIRES(mutex_);
  /// Steps, if no other thread is at it, as long as they succeed. An error is noticed again by the
  /// next step.
  void take_steps() REMORA_REQUIRES(mutex_);
  /// converge(), with `lock` on mutex_: one thread asks the store and the members, the others wait
  /// for it, and leave at their own deadlines.
  Status converge_locked(remora::detail::MutexLock& lock, Time until) REMORA_REQUIRES(mutex_);
  Status converge_alone(remora::detail::MutexLock& lock, Time until) REMORA_REQUIRES(mutex_);
  /// One transaction between two converge_locked(). Errors: also kIndeterminate.
  Status change_and_converge(const Result<GroupRecord>& next, remora::detail::MutexLock& lock,
                             Time until) REMORA_REQUIRES(mutex_);
  /// After the transaction that removed a member.
  void note_removal(std::size_t slot, const Error& cause, bool was_primary) REMORA_REQUIRES(mutex_);
  Status remove_failed() REMORA_REQUIRES(mutex_);
  /// Those of failed_ whose grant was taken away by a fence.
  [[nodiscard]] MemberSet fenced_members() const REMORA_REQUIRES(mutex_);
  /// Of one of them: it has not failed any more, or with another error. Errors: those of the store
  /// and of this process; lost_error().
  Status open_again(std::size_t slot) REMORA_REQUIRES(mutex_);
  Status write_headers() REMORA_REQUIRES(mutex_);
  Status settle_one(std::size_t slot, Time until) REMORA_REQUIRES(mutex_);
  void spoil(std::size_t slot) REMORA_REQUIRES(mutex_);
  void note_failure(std::size_t slot, const Error& error, Time until) REMORA_REQUIRES(mutex_);
  void fail(std::size_t slot, const Error& error) REMORA_REQUIRES(mutex_);
  void try_to_end_promotion(const std::function<bool()>& nothing_unresolved)
      REMORA_REQUIRES(mutex_);
  [[nodiscard]] bool readers_are_gone() REMORA_REQUIRES(mutex_);
  [[nodiscard]] Error too_late(const char* what) const;
  void note(VolumeEventKind kind, const std::string& server, const Error& error)
      REMORA_REQUIRES(mutex_);
  void count_removed(const std::string& server, const Error& error) REMORA_REQUIRES(mutex_);
  /// Calls the handler with what was noted; without the mutex.
  void report();
  void tell(const std::vector<VolumeEvent>& events) const;
  template <typename Ready>
  Status await(Time until, const Ready& ready);

  const MirrorOptions& options_;
  MemberOpener& opener_;
  MemberSlots slots_;
  OperationGate gate_;
  OperationGate read_gate_;
  std::atomic<GroupRoles> roles_{};
  std::atomic<std::uint64_t> changes_{0};
  std::atomic<std::uint16_t> unsettled_{0};
  std::atomic<std::int64_t> confirmed_at_{0};  ///< 0: not at all
  std::atomic<bool> read_since_{false};
  mutable remora::detail::Mutex mutex_;
  remora::detail::Condition changed_;
  GroupKey key_ REMORA_GUARDED_BY(mutex_);
  std::uint64_t epoch_ REMORA_GUARDED_BY(mutex_) = 0;  ///< of the configuration in roles_
  bool headers_ REMORA_GUARDED_BY(mutex_) = false;
  bool holding_ REMORA_GUARDED_BY(mutex_) = false;     ///< this object has closed gate_
  bool spoiled_ REMORA_GUARDED_BY(mutex_) = false;     ///< the syncing member has missed a write
  bool converging_ REMORA_GUARDED_BY(mutex_) = false;  ///< a thread is in converge_alone()
  /// add_syncing() has ended without knowing whether the member is in the configuration.
  bool abandoned_ REMORA_GUARDED_BY(mutex_) = false;
  MemberSet failed_ REMORA_GUARDED_BY(mutex_){};
  MemberSlots::Outcomes failures_ REMORA_GUARDED_BY(mutex_){};  ///< why, of those in failed_
  PromotionWait promotion_ REMORA_GUARDED_BY(mutex_){};
  std::vector<VolumeEvent> events_ REMORA_GUARDED_BY(mutex_);
};

}  // namespace remora::volume::detail
