#include "mirror_census.h"

#include <algorithm>
#include <utility>

#include "mirror_layout.h"
#include "mirror_log.h"

namespace remora::volume::detail {

using remora::detail::MutexLock;

MirrorCensus::MirrorCensus(std::shared_ptr<MirrorMetrics> metrics,
                           std::shared_ptr<const VolumeClaim> claim)
    : metrics_{std::move(metrics)}, claim_{std::move(claim)} {
  metrics_->add(*this);
}

MirrorCensus::~MirrorCensus() { metrics_->remove(*this); }

void MirrorCensus::expect(std::size_t groups) {
  {
    const MutexLock lock{mutex_};
    expected_ = groups;
    groups_.reserve(groups);
  }
  log_claimed(claim_->volume().name, claim_->writer_epoch(), groups);
}

void MirrorCensus::add(std::size_t index, const MirrorGroup* group, const Status& done) {
  {
    const MutexLock lock{mutex_};
    if (done)
      groups_.push_back(group);
    else if (done.error().code() == Code::kStaleRegion)
      ++lost_;
  }
  if (!done) log_group_not_adopted(claim_->volume().name, index, done.error());
}

void MirrorCensus::tick(std::chrono::nanoseconds now) {
  constexpr std::chrono::milliseconds kPeriod{100};
  if (claim_->lost()) return;
  const MutexLock lock{mutex_};
  if (ticked_.count() == 0) ticked_ = now;
  const auto passed = now - ticked_;
  if (passed < kPeriod) return;
  ticked_ = now;
  const auto degraded = std::count_if(groups_.begin(), groups_.end(), [&](const MirrorGroup* each) {
    return !has_all_copies(*each);
  });
  if (degraded != 0) metrics_->degraded_for(passed * degraded);
}

bool MirrorCensus::has_all_copies(const MirrorGroup& group) const noexcept {
  return group.roles().in_sync.size() >= claim_->volume().copies;
}

MirrorGroupState MirrorCensus::state_of(const MirrorGroup& group) const noexcept {
  if (group.roles().promoting) return MirrorGroupState::kPromoting;
  return has_all_copies(group) ? MirrorGroupState::kInSync : MirrorGroupState::kDegraded;
}

std::uint64_t MirrorCensus::count(MirrorGroupState state) const {
  if (claim_->lost()) return 0;
  const MutexLock lock{mutex_};
  if (state == MirrorGroupState::kLost) return lost_;
  if (state == MirrorGroupState::kUnadopted)
    return expected_ - std::min<std::uint64_t>(expected_, groups_.size() + lost_);
  return static_cast<std::uint64_t>(
      std::count_if(groups_.begin(), groups_.end(),
                    [&](const MirrorGroup* each) { return state_of(*each) == state; }));
}

std::uint64_t MirrorCensus::bytes_left(MirrorCopy kind) const {
  if (claim_->lost()) return 0;
  const MutexLock lock{mutex_};
  std::uint64_t zones = 0;
  for (const MirrorGroup* const each : groups_)
    zones += kind == MirrorCopy::kZones ? each->unresolved().count() : each->uncopied();
  return zones * kZoneBytes;
}

}  // namespace remora::volume::detail
