#pragma once

/// A mirror whose claim this process holds, as the work on it needs it: MirrorWriter, or a fake.

#include <chrono>
#include <cstdint>
#include <string>

#include <remora/result.h>
#include <remora/volume/cluster.h>
#include <remora/volume/records.h>
#include <remora/volume/volume_options.h>

namespace remora::volume::detail {

/// Thread-safe. Each function that takes `until` blocks, at most until then plus the limits of one
/// operation. Errors of those: kTimedOut; kIndeterminate (a transaction of unknown outcome);
/// kStaleRegion (another client has the claim).
class ClaimedVolume {
 public:
  using Time = std::chrono::steady_clock::time_point;

  virtual ~ClaimedVolume() = default;
  ClaimedVolume(const ClaimedVolume&) = delete;
  ClaimedVolume& operator=(const ClaimedVolume&) = delete;

  [[nodiscard]] virtual const VolumeRecord& volume() const noexcept = 0;
  [[nodiscard]] virtual std::uint32_t group_count() const noexcept = 0;
  /// False: another client has claimed the volume meanwhile: all other functions fail.
  [[nodiscard]] virtual bool claimed() const noexcept = 0;
  /// Asks the store whether this process still has the claim. Errors: those of the store;
  /// kAccessRefused (another client has claimed the volume).
  virtual Status confirm() = 0;
  /// Whether `layout` was read while this process had the claim.
  [[nodiscard]] virtual bool is_ours(const VolumeLayout& layout) const = 0;
  /// False: the group was not adopted, for example since no in-sync member could be reached; its
  /// other functions are not called.
  [[nodiscard]] virtual bool group_open(std::uint32_t group) const = 0;
  /// Why; ok: it was adopted.
  [[nodiscard]] virtual Status adoption(std::uint32_t group) const = 0;
  /// The configuration, as the writer knows it.
  [[nodiscard]] virtual GroupRecord group(std::uint32_t group) const = 0;
  [[nodiscard]] virtual std::uint32_t zone_count() const noexcept = 0;

  /// Drains the group, opens `member` (a region that was just created), and adds it by a
  /// transaction, as syncing. Errors: kBusy (promoting, or another member is syncing).
  virtual Status add_syncing(std::uint32_t group, const Member& member, Time until) = 0;
  /// Copies one zone from the primary to all others. Errors: kBusy (the primary has changed: all
  /// zones are copied again; or the syncing member was removed).
  virtual Status copy_zone(std::uint32_t group, std::uint32_t zone, Time until) = 0;
  /// After every zone: copies the bitmap, drains, and makes the syncing member in sync. Errors:
  /// kBusy (a write to it failed, and it was removed).
  virtual Status make_in_sync(std::uint32_t group, Time until) = 0;
  /// Removes the member with this region. Errors: kBusy (it is the last in-sync one).
  virtual Status remove_member(std::uint32_t group, const std::string& region, Time until) = 0;
  /// Calls the event handler of the handle that has claimed the volume, if it has one.
  virtual void tell(const VolumeEvent& event) = 0;
  /// Blocks while the group is promoting.
  virtual Status settle_promotion(std::uint32_t group, Time until) = 0;

 protected:
  ClaimedVolume() = default;
};

}  // namespace remora::volume::detail
