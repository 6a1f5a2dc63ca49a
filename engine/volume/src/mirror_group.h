#pragma once

/// One group of a mirror, for its claimed writer.

#include <atomic>
#include <bitset>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <remora/engine/buffer.h>
#include <remora/result.h>
#include <remora/volume/records.h>

#include "group_control.h"
#include "group_operation.h"
#include "intent_bitmap.h"
#include "mirror_layout.h"
#include "write_progress.h"
#include "zone_flags.h"
#include "zone_locks.h"

namespace remora::volume::detail {

/// Rules 9, 10, 12 to 17, 23, 24 and 26 of engine/docs/volumes.md: the bytes of a group. Offsets
/// are those in the group; an operation is within one zone. Thread-safe.
///
/// An operation ends within its deadline, plus the limits of one operation on a member and of one
/// request to the store. Errors, beside those of a region: kTimedOut, without effect: the group
/// promotes a member, or the store does not answer; kIndeterminate: members may differ, and the
/// writer makes them equal (maintain()); kAccessRefused with Reason::kFenced: the claim is lost.
class MirrorGroup {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// Of an adopted group, which serves after repair(). `options` and `opener` are borrowed. Errors:
  /// kOutOfMemory.
  static Result<std::unique_ptr<MirrorGroup>> create(
      GroupKey key, const std::vector<std::shared_ptr<MirrorMember>>& members,
      std::uint64_t group_bytes, const MirrorOptions& options, MemberOpener& opener);

  Status write(std::uint64_t offset_bytes, const Source& from, Time until);
  Status write_zeroes(std::uint64_t offset_bytes, std::uint64_t length_bytes, Time until);
  Status read(std::uint64_t offset_bytes, const Target& into, Time until);
  /// At most MemberLane::kOperationsMax operations, in flight together as far as nothing that came
  /// before overlaps them; the others follow one after the other. Each ends as write() or
  /// write_zeroes(), or as read(), would end it.
  void write_together(std::span<GroupOperation> writes);
  void read_together(std::span<GroupOperation> reads);
  /// Return the value before. 8 bytes, 8-byte aligned; atomic among the operations of this writer.
  Result<std::uint64_t> compare_swap(std::uint64_t offset_bytes, std::uint64_t expected,
                                     std::uint64_t desired, Time until);
  Result<std::uint64_t> fetch_add(std::uint64_t offset_bytes, std::uint64_t delta, Time until);

  /// Rules 9, 10: reads the bitmaps, copies the zones that any of them marks, clears them.
  Status repair(Time until);
  /// From now on only this writer reads: it may write all members at once. After T. Waits for the
  /// reads that began before, which know of no write beside them (rule 24). False: some were still
  /// under way at `until`, and nothing has changed.
  [[nodiscard]] bool set_exclusive(Time until) noexcept;
  [[nodiscard]] bool is_exclusive() const noexcept {
    return exclusive_.load(std::memory_order_acquire);
  }
  /// Ends freezes and promotions, resolves zones, clears bits of zones that were not written since
  /// the last call with `clear`. Called again and again by the writer's thread. Waits for no
  /// operation and for no other thread; what one of them keeps it from is left for the next call.
  void maintain(bool clear);
  /// Its parts, for a thread with several groups. First what others wait for: changes of the
  /// configuration, ends of freezes and promotions, confirmations.
  void steer();
  /// Then what takes the time of operations on members: zones, one after the other as long as
  /// `until` has not come, and bits.
  void work_on_zones(bool clear, Time until);

  [[nodiscard]] GroupControl& control() noexcept { return control_; }
  [[nodiscard]] GroupRoles roles() const noexcept { return control_.roles(); }
  [[nodiscard]] GroupRecord record() const { return control_.record(); }
  [[nodiscard]] std::uint32_t zone_count() const noexcept { return bitmap_.marked().zones(); }
  [[nodiscard]] const ZoneFlags& marked() const noexcept { return bitmap_.marked(); }
  [[nodiscard]] const ZoneFlags& unresolved() const noexcept { return unresolved_; }
  /// Zones that copy_zone() has not copied to the member that is built.
  [[nodiscard]] std::uint64_t uncopied() const noexcept {
    return roles().syncing.empty() ? 0 : uncopied_.count();
  }

  /// Rule 25: `member` is a region that was just created.
  Status add_syncing(const Member& member, Time until) {
    Status done = control_.add_syncing(member, until);
    for (std::uint32_t zone = 0; done && zone < zone_count(); ++zone) uncopied_.set(zone);
    return done;
  }
  /// Rule 26. Errors: kBusy: the member was removed, or a write to it has failed.
  Status copy_zone(std::uint32_t zone, Time until);
  /// After each zone was copied. Errors: kBusy, as copy_zone().
  Status make_in_sync(Time until);
  /// Errors: kBusy (the last member in sync), kNotFound.
  Status remove_member(const std::string& region, Time until) {
    return control_.remove_member(region, until);
  }
  /// Waits until the group is not promoting.
  Status settle_promotion(Time until) { return control_.await_readable(until); }

 private:
  static constexpr std::size_t kTogetherMax = MemberLane::kOperationsMax;
  using Together = std::bitset<kTogetherMax>;

  MirrorGroup(GroupKey key, const std::vector<std::shared_ptr<MirrorMember>>& members,
              std::uint64_t group_bytes, std::unique_ptr<ZoneLocks> locks,
              const MirrorOptions& options, MemberOpener& opener);

  /// Writes to the members that `progress` names, until each has it. Ok or not, operations of
  /// unknown outcome are only at members that unsettled() names.
  Status carry_out(std::span<const MemberWrite> writes, WriteProgress& progress, Time until);
  Status carry_out(const MemberWrite& write, WriteProgress& progress, Time until) {
    return carry_out(std::span{&write, 1}, progress, until);
  }
  Status write_word(std::uint32_t word, std::uint64_t value);
  /// `length_bytes` from `offset_bytes` on, in one zone.
  Status write_range(std::uint64_t offset_bytes, std::uint64_t length_bytes, const Source& from,
                     Time until);
  /// Marks the zones of writes. After an error nothing was posted.
  Status mark(std::span<const MemberWrite> writes, Time until);
  /// carry_out() of bytes whose ranges the caller holds. After an error with something posted the
  /// zones are unresolved, and the error is in doubt.
  Status carry_out_data(std::span<const MemberWrite> writes, WriteProgress& progress, Time until);
  /// Marks the zone, writes the members, acknowledges. `hold` is released.
  Status write_held(const MemberWrite& write, ZoneLocks::Hold& hold, Time until);
  Status acknowledge(std::span<const MemberWrite> writes, Time until);
  void set_unresolved(std::span<const MemberWrite> writes);
  /// Gets the range of a zone that is resolved.
  Status hold_range(ZoneLocks::Hold& hold, std::uint64_t offset_bytes, std::uint64_t length_bytes,
                    bool shared, Time until);
  /// The same at once. False: not held, since it would have to wait.
  [[nodiscard]] bool try_to_hold(ZoneLocks::Hold& hold, const GroupOperation& operation,
                                 bool shared);
  /// Offsets are those in the members' regions.
  Status read_primary(std::span<const MemberRead> reads, Time until);
  /// `ended`: which of them have ended, and have their status.
  void write_ready(std::span<GroupOperation> writes, Together& ended);
  /// A write that was posted together with others, and is in doubt: alone, in its range.
  Status repeat(const MemberWrite& write, Time until);
  /// `together`: which of them were carried out together, and have the status that is returned.
  Status read_ready(std::span<const GroupOperation> reads, Together& together);
  /// The error of a write that some members may have. One of the caller's memory stays as it is.
  [[nodiscard]] static Error in_doubt(const Error& error);
  template <typename Compute>
  Result<std::uint64_t> change_word(std::uint64_t offset_bytes, Time until, const Compute& compute);
  Status read_bitmaps(Time until);
  /// Makes a zone equal; holds the zone's lock.
  Status resolve(std::uint32_t zone, Time until);
  /// The same, while the caller holds it.
  Status resolve_held(std::uint32_t zone, Time until);
  Status copy(std::uint32_t zone, Spread to, Time until);
  void resolve_all(Time until);
  void clear_idle(Time until);
  [[nodiscard]] Spread spread() const noexcept {
    return exclusive_.load(std::memory_order_acquire) ? Spread::kAtOnce : Spread::kBackupsFirst;
  }
  [[nodiscard]] static std::uint32_t zone_of(std::uint64_t offset_bytes) noexcept {
    return static_cast<std::uint32_t>(offset_bytes / kZoneBytes);
  }
  [[nodiscard]] std::uint32_t zone_of(const MemberWrite& write) const noexcept {
    return zone_of(write.offset_bytes - data_offset_);
  }
  [[nodiscard]] MemberWrite member_write(std::uint64_t offset_bytes, std::uint64_t length_bytes,
                                         const Source& from) const noexcept {
    return {.offset_bytes = data_offset_ + offset_bytes,
            .from = from,
            .zeroes = from.bytes().empty() ? length_bytes : 0};
  }

  const MirrorOptions& options_;
  const std::uint64_t group_bytes_;
  const std::uint64_t data_offset_;
  GroupControl control_;
  std::unique_ptr<ZoneLocks> locks_;
  IntentBitmap bitmap_;
  ZoneFlags unresolved_;
  ZoneFlags recent_;  ///< written since the last clear
  ZoneFlags uncopied_;
  std::atomic<bool> exclusive_{false};
};

}  // namespace remora::volume::detail
