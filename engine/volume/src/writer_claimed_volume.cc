#include "writer_claimed_volume.h"

#include <utility>

#include "mirror_layout.h"

namespace remora::volume::detail {

WriterClaimedVolume::WriterClaimedVolume(std::shared_ptr<MirrorWriter> writer) noexcept
    : writer_{std::move(writer)} {}

const VolumeRecord& WriterClaimedVolume::volume() const noexcept {
  return writer_->claim().volume();
}

std::uint32_t WriterClaimedVolume::group_count() const noexcept { return writer_->group_count(); }

bool WriterClaimedVolume::claimed() const noexcept { return !writer_->lost(); }

Status WriterClaimedVolume::confirm() { return writer_->confirm_claim(); }

bool WriterClaimedVolume::is_ours(const VolumeLayout& layout) const {
  const VolumeClaim& claim = writer_->claim();
  return layout.generation == claim.generation() && claim.is_writer().value == layout.volume_value;
}

bool WriterClaimedVolume::group_open(std::uint32_t group) const {
  return writer_->group_open(group);
}

Status WriterClaimedVolume::adoption(std::uint32_t group) const { return writer_->adoption(group); }

GroupRecord WriterClaimedVolume::group(std::uint32_t group) const {
  return writer_->group(group).record();
}

std::uint32_t WriterClaimedVolume::zone_count() const noexcept {
  return detail::zone_count(volume().group_bytes);
}

Status WriterClaimedVolume::add_syncing(std::uint32_t group, const Member& member, Time until) {
  return writer_->group(group).add_syncing(member, until);
}

Status WriterClaimedVolume::copy_zone(std::uint32_t group, std::uint32_t zone, Time until) {
  return writer_->group(group).copy_zone(zone, until);
}

Status WriterClaimedVolume::make_in_sync(std::uint32_t group, Time until) {
  return writer_->group(group).make_in_sync(until);
}

Status WriterClaimedVolume::remove_member(std::uint32_t group, const std::string& region,
                                          Time until) {
  return writer_->group(group).remove_member(region, until);
}

void WriterClaimedVolume::tell(const VolumeEvent& event) { writer_->tell(event); }

Status WriterClaimedVolume::settle_promotion(std::uint32_t group, Time until) {
  return writer_->group(group).settle_promotion(until);
}

}  // namespace remora::volume::detail
