#pragma once

/// What a scrape asks about the groups of a claim.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <remora/mutex.h>
#include <remora/result.h>

#include "mirror_group.h"
#include "mirror_metrics.h"
#include "volume_claim.h"

namespace remora::volume::detail {

/// Belongs to the claimed writer. Tells MirrorMetrics about its groups as long as it exists; after
/// the claim has ended, about none. Its mutex is never taken by an operation. Thread-safe.
class MirrorCensus {
 public:
  MirrorCensus(std::shared_ptr<MirrorMetrics> metrics, std::shared_ptr<const VolumeClaim> claim);
  ~MirrorCensus();
  MirrorCensus(const MirrorCensus&) = delete;
  MirrorCensus& operator=(const MirrorCensus&) = delete;

  /// The volume has so many groups: those that are not added are not adopted.
  void expect(std::size_t groups);
  /// The group `index` was adopted and repaired if `done`; then it is borrowed. Logs it if not.
  void add(std::size_t index, const MirrorGroup* group, const Status& done);
  /// Called again and again by the writer's thread: counts the time in which groups were degraded.
  void tick(std::chrono::nanoseconds now);

  [[nodiscard]] std::uint64_t count(MirrorGroupState state) const;
  [[nodiscard]] std::uint64_t bytes_left(MirrorCopy kind) const;
  /// 1, or 0 after the claim has ended.
  [[nodiscard]] std::uint64_t writers() const noexcept { return claim_->lost() ? 0 : 1; }
  /// 0 after the claim has ended.
  [[nodiscard]] std::uint64_t writer_epoch() const noexcept {
    return claim_->lost() ? 0 : claim_->writer_epoch();
  }

 private:
  [[nodiscard]] bool has_all_copies(const MirrorGroup& group) const noexcept;
  [[nodiscard]] MirrorGroupState state_of(const MirrorGroup& group) const noexcept;

  const std::shared_ptr<MirrorMetrics> metrics_;
  const std::shared_ptr<const VolumeClaim> claim_;
  mutable remora::detail::Mutex mutex_;
  std::vector<const MirrorGroup*> groups_ REMORA_GUARDED_BY(mutex_);
  std::uint64_t expected_ REMORA_GUARDED_BY(mutex_) = 0;
  std::uint64_t lost_ REMORA_GUARDED_BY(mutex_) = 0;
  std::chrono::nanoseconds ticked_ REMORA_GUARDED_BY(mutex_){0};  ///< 0: not yet
};

}  // namespace remora::volume::detail
