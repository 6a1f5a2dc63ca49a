#include "volume_lanes.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include <remora/assert.h>

#include "volume_core.h"

namespace remora::volume::detail {

Result<VolumeLanes> VolumeLanes::create(const VolumeCore& volume, std::size_t depth,
                                        std::chrono::nanoseconds deadline) {
  VolumeLanes made{volume};
  const QueueOptions options{.depth = depth + kMaxParts, .deadline = deadline};
  std::vector<std::uint32_t> lanes;
  // Regions of one server usually share a session.
  std::map<std::string_view, std::uint32_t> of_server;
  for (std::uint32_t group = 0; group < volume.regions().size(); ++group) {
    std::uint32_t& last = of_server.try_emplace(volume.member(group).server, kNoLane).first->second;
    const auto lane = made.add_group(group, last, options);
    if (!lane) return lane.error();
    lanes.push_back(*lane);
    if (*lane != kNoLane) last = *lane;
  }
  for (const std::uint32_t lane : lanes)
    made.lane_of_group_.push_back(lane == kNoLane ? nullptr : &made.lanes_[lane]);
  made.selected_.resize(lanes.size(), nullptr);
  for (VolumeLane& lane : made.lanes_) made.selected_[lane.group] = &lane;
  return made;
}

/// Returns the lane of a group, or kNoLane. `of_server`: the lane of its server to try first.
Result<std::uint32_t> VolumeLanes::add_group(std::uint32_t group, std::uint32_t of_server,
                                             const QueueOptions& options) {
  if (volume_->member(group).error) return kNoLane;
  const Region& region = volume_->region(group);
  if (of_server != kNoLane) {
    // The queue keeps the region from now on, so that no later select() allocates.
    VolumeLane& lane = lanes_[of_server];
    const Status selected = lane.queue.select(region);
    if (selected.ok()) {
      lane.group = group;
      return of_server;
    }
    if (selected.error().code() != Code::kInvalidArgument) return selected.error();
  }
  auto queue = region.queue(options);
  if (!queue && queue.error().code() == Code::kConnectionLost) return kNoLane;
  if (!queue) return queue.error();
  lanes_.push_back({.queue = std::move(*queue), .group = group});
  return static_cast<std::uint32_t>(lanes_.size() - 1);
}

void VolumeLanes::select_region(VolumeLane& lane, std::uint32_t group) noexcept {
  // Fails neither for another session nor for lack of memory: add_group() has selected it.
  [[maybe_unused]] const Status selected = lane.queue.select(volume_->region(group));
  REMORA_ASSERT_HOT(selected.ok(), "a lane can select the regions of its groups");
  selected_[lane.group] = nullptr;
  selected_[group] = &lane;
  lane.group = group;
}

void VolumeLanes::submit() noexcept {
  for (VolumeLane& lane : lanes_) {
    if (lane.taken_count == 0) continue;
    const Status submitted = lane.queue.submit();
    REMORA_ASSERT(submitted.ok(), "one call of a volume's queue uses its lanes at a time");
    in_flight_count_ += lane.taken_count;
    lane.in_flight_count += std::exchange(lane.taken_count, 0);
  }
}

std::chrono::steady_clock::time_point VolumeLanes::next_deadline() const noexcept {
  auto earliest = std::chrono::steady_clock::time_point::max();
  for (const VolumeLane& lane : lanes_) earliest = std::min(earliest, lane.queue.next_deadline());
  return earliest;
}

Result<EventSet*> VolumeLanes::events() noexcept {
  if (events_ != nullptr) return events_.get();
  auto made = EventSet::create();
  if (!made) return made.error();
  for (VolumeLane& lane : lanes_) {
    const Result<int> fd = lane.queue.event_fd();
    if (!fd) return fd.error();
    if (const Status added = (*made)->add(*fd); !added) return added.error();
  }
  events_ = std::move(*made);
  return events_.get();
}

}  // namespace remora::volume::detail
