#pragma once

/// The engine's queues of one volume's queue: one for each session.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <remora/assert.h>
#include <remora/engine/queue.h>
#include <remora/result.h>

#include "event_set.h"

namespace remora::volume::detail {

class VolumeCore;

/// The queue of one session.
struct VolumeLane {
  Queue queue;
  std::uint32_t group = 0;          ///< whose region is selected
  std::size_t taken_count = 0;      ///< operations since the last submit()
  std::size_t in_flight_count = 0;  ///< from submit() until they were handed out
  std::size_t parts_count = 0;      ///< of operations in parts, among both
};

/// Has the same owner as the queue of the volume.
class VolumeLanes {
 public:
  /// The most parts of long operations in one lane: more than the requests that a connection needs
  /// to be busy with stripe units.
  static constexpr std::size_t kMaxParts = 32;

  /// `depth` operations of one part have room in each lane, beside kMaxParts. Groups whose session
  /// has ended have no lane. Errors: kOutOfMemory.
  static Result<VolumeLanes> create(const VolumeCore& volume, std::size_t depth,
                                    std::chrono::nanoseconds deadline);

  /// The lane that has selected the region of a group. Null: none has; select() does it.
  [[nodiscard, gnu::always_inline]] VolumeLane* selected(std::uint32_t group) const noexcept {
    return selected_[group];
  }
  /// The lane of a group, whose region it then has selected. Null: there is none.
  [[nodiscard]] VolumeLane* select(std::uint32_t group) noexcept {
    VolumeLane* const lane = lane_of_group_[group];
    if (lane == nullptr) [[unlikely]]
      return nullptr;
    if (lane->group != group) select_region(*lane, group);
    return lane;
  }
  /// Posts what the lanes have taken.
  void submit() noexcept;

  [[nodiscard]] std::vector<VolumeLane>& all() noexcept { return lanes_; }
  [[nodiscard]] std::size_t in_flight_count() const noexcept { return in_flight_count_; }
  void remove_in_flight(VolumeLane& lane, std::size_t count) noexcept {
    REMORA_ASSERT_HOT(count <= lane.in_flight_count && count <= in_flight_count_,
                      "an operation of a lane is handed out once");
    lane.in_flight_count -= count;
    in_flight_count_ -= count;
  }
  [[nodiscard]] std::chrono::steady_clock::time_point next_deadline() const noexcept;
  /// The descriptors of all lanes; made by the first call. Errors: kSystem, kOutOfMemory.
  Result<EventSet*> events() noexcept;
  /// Null: events() was not called.
  [[nodiscard]] EventSet* events_or_null() const noexcept { return events_.get(); }

 private:
  static constexpr std::uint32_t kNoLane = ~std::uint32_t{0};

  explicit VolumeLanes(const VolumeCore& volume) noexcept : volume_{&volume} {}
  void select_region(VolumeLane& lane, std::uint32_t group) noexcept;
  Result<std::uint32_t> add_group(std::uint32_t group, std::uint32_t of_server,
                                  const QueueOptions& options);

  const VolumeCore* volume_;
  std::vector<VolumeLane> lanes_;
  std::vector<VolumeLane*> lane_of_group_;  ///< null: none
  std::vector<VolumeLane*> selected_;       ///< of each group: see selected()
  std::size_t in_flight_count_ = 0;
  std::unique_ptr<EventSet> events_;
};

}  // namespace remora::volume::detail
