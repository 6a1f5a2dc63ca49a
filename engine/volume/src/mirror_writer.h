#pragma once

/// The claimed writer of a mirror.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string_view>
#include <thread>
#include <vector>

#include <remora/assert.h>
#include <remora/engine/engine_share.h>
#include <remora/mutex.h>
#include <remora/result.h>
#include <remora/volume/cluster.h>

#include "claim_keeper.h"
#include "member_opener.h"
#include "mirror_census.h"
#include "mirror_group.h"
#include "mirror_options.h"
#include "volume_claim.h"

namespace remora::volume::detail {

/// A claim, which a ClaimKeeper renews, its groups, and a thread (`remora-mirror`) that ends
/// promotions, makes zones equal and clears bits. Thread-safe.
class MirrorWriter {
 public:
  /// Claims the volume, adopts and repairs each group. Blocks as long as that takes. Errors: those
  /// of VolumeClaim::claim() and adopt_group(); with options.partial the latter leave a group
  /// closed. After an error the claim is released.
  static Result<std::shared_ptr<MirrorWriter>> claim(const remora::detail::EngineShare& engine,
                                                     const Cluster& cluster,
                                                     std::string_view volume,
                                                     const MirrorOptions& options);
  /// The same with another opener, for tests.
  static Result<std::shared_ptr<MirrorWriter>> claim(std::shared_ptr<MemberOpener> opener,
                                                     const Cluster& cluster,
                                                     std::string_view volume,
                                                     const MirrorOptions& options);
  MirrorWriter(std::shared_ptr<VolumeClaim> claim, std::shared_ptr<MemberOpener> opener,
               const MirrorOptions& options);
  /// Releases the claim, as far as the store answers. No operation is under way.
  ~MirrorWriter();
  MirrorWriter(const MirrorWriter&) = delete;
  MirrorWriter& operator=(const MirrorWriter&) = delete;

  [[nodiscard]] std::uint32_t group_count() const noexcept {
    return static_cast<std::uint32_t>(groups_.size());
  }
  [[nodiscard]] bool group_open(std::uint32_t index) const noexcept {
    return groups_[index] != nullptr;
  }
  /// Why it is not.
  [[nodiscard]] Status adoption(std::uint32_t index) const { return adoptions_[index]; }
  /// Only if it is open.
  [[nodiscard]] MirrorGroup& group(std::uint32_t index) const noexcept {
    REMORA_ASSERT(index < groups_.size() && group_open(index), "only an adopted group is used");
    return *groups_[index];
  }
  [[nodiscard]] const VolumeClaim& claim() const noexcept { return *claim_; }
  [[nodiscard]] bool lost() const noexcept { return claim_->lost(); }
  /// Whether members may differ after a write of this writer: in no group that is not open.
  [[nodiscard]] bool has_unresolved() const noexcept;
  /// VolumeClaim::confirm().
  Status confirm_claim() { return claim_->confirm(); }

  /// Calls the handler of the options.
  void tell(const VolumeEvent& event) const {
    if (options_.on_event) options_.on_event(event);
  }

  /// One repair at a time: another one would take regions that were just made for remains, and make
  /// copies that are there then. False: one is under way.
  [[nodiscard]] bool begin_repair() noexcept {
    return !repairing_.exchange(true, std::memory_order_acquire);
  }
  void end_repair() noexcept {
    const bool began = repairing_.exchange(false, std::memory_order_release);
    REMORA_ASSERT(began, "a repair that has begun ends once");
  }

  /// Clears the bitmaps as far as it can, and ends the claim. Operations fail after that.
  Status release();

 private:
  /// Of the thread, which looks at what others wait for at least so often as it can.
  static constexpr std::chrono::milliseconds kPeriod{20};

  Status start();
  Status adopt_all();
  /// Whether all groups are open, and in none a zone is unresolved.
  [[nodiscard]] bool members_are_equal() const;
  /// Whether members may differ in zones that readers could see. Only an exclusive writer lets that
  /// be: this one, or one before whose groups are not all repaired.
  [[nodiscard]] bool stays_exclusive() const {
    const bool differed =
        claim_->found_exclusive() || wrote_at_once_.load(std::memory_order_acquire);
    return differed && !members_are_equal();
  }
  /// `claimed`: a time after the claim.
  void run(std::chrono::nanoseconds claimed);
  void write_at_once();
  /// All that is to be done in the groups, one after the other.
  void maintain(bool clear);
  /// A part of it: what others wait for, of all groups, comes before the zones of the next one.
  void maintain_in_turn(bool clear);
  void steer();
  void stop();

  const MirrorOptions options_;
  const std::shared_ptr<VolumeClaim> claim_;
  const std::shared_ptr<MemberOpener> opener_;
  std::vector<std::unique_ptr<MirrorGroup>> groups_;
  std::vector<Status> adoptions_;           ///< of the groups; changes when they do
  MirrorCensus census_;                     ///< ended before the groups
  std::atomic<bool> serving_{false};        ///< groups_ does not change any more
  std::atomic<bool> wrote_at_once_{false};  ///< as an exclusive writer
  std::atomic<bool> repairing_{false};      ///< begin_repair()
  ClaimKeeper keeper_;
  remora::detail::Mutex mutex_;
  remora::detail::Condition wake_;
  bool stopped_ REMORA_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace remora::volume::detail
