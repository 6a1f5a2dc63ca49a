/// The functions of a volume's queue. volume_queue_core.cc has read() and write(), into which those
/// of its core are inlined.

#include <limits>
#include <utility>

#include <remora/volume/volume_queue.h>

#include "volume_core.h"
#include "volume_queue_core.h"

namespace remora::volume {

namespace {

/// Of a queue that was moved from.
constexpr detail::VolumeQueueRoom kNoRoom{};

Error closed_queue(Operation operation,
                   const remora::detail::OwnedUnique<detail::VolumeQueueCore>& core) noexcept {
  return remora::detail::closed_handle(operation, core.foreign());
}

}  // namespace

VolumeQueue::VolumeQueue(std::unique_ptr<detail::VolumeQueueCore> core) noexcept
    : core_{std::move(core)}, room_{&core_->room()} {}
VolumeQueue::~VolumeQueue() = default;
VolumeQueue::VolumeQueue(VolumeQueue&& other) noexcept
    : core_{std::move(other.core_)}, room_{std::exchange(other.room_, &kNoRoom)} {}
VolumeQueue& VolumeQueue::operator=(VolumeQueue&& other) noexcept {
  if (this == &other) return *this;
  core_ = std::move(other.core_);
  room_ = std::exchange(other.room_, &kNoRoom);
  return *this;
}

/// An offset that is out of range for a block that does not exist.
ByteOffset VolumeQueue::offset_of(Block block) const noexcept {
  std::uint64_t offset = 0;
  if (core_ == nullptr ||
      __builtin_mul_overflow(block.index, core_->volume().record().block_bytes, &offset))
    return ByteOffset{std::numeric_limits<std::uint64_t>::max()};
  return ByteOffset{offset};
}

bool VolumeQueue::read(Block from, Target into, std::uint64_t tag) noexcept {
  return read(offset_of(from), into, tag);
}
bool VolumeQueue::write(Block to, Source from, std::uint64_t tag) noexcept {
  return write(offset_of(to), from, tag);
}
bool VolumeQueue::write_zeroes(ByteOffset at, std::uint64_t length_bytes,
                               std::uint64_t tag) noexcept {
  return core_ != nullptr && core_->write_zeroes(at, length_bytes, tag);
}
bool VolumeQueue::flush_visible(std::uint64_t tag) noexcept {
  return core_ != nullptr && core_->flush_visible(tag);
}
bool VolumeQueue::compare_swap(ByteOffset at, std::uint64_t expected, std::uint64_t desired,
                               std::uint64_t tag) noexcept {
  return core_ != nullptr && core_->compare_swap(at, expected, desired, tag);
}
bool VolumeQueue::fetch_add(ByteOffset at, std::uint64_t delta, std::uint64_t tag) noexcept {
  return core_ != nullptr && core_->fetch_add(at, delta, tag);
}

Status VolumeQueue::submit() noexcept {
  if (core_ == nullptr) [[unlikely]]
    return closed_queue("submit", core_);
  return core_->submit();
}

VolumeCompletions VolumeQueue::wait(std::size_t at_least) noexcept {
  if (core_ == nullptr) return {};
  return core_->wait(at_least);
}

Result<int> VolumeQueue::event_fd() noexcept {
  if (core_ == nullptr) return closed_queue("event_fd", core_);
  return core_->event_fd();
}

VolumeCompletions VolumeQueue::progress() noexcept {
  if (core_ == nullptr) return {};
  return core_->progress();
}

std::chrono::steady_clock::time_point VolumeQueue::next_deadline() const noexcept {
  if (core_ == nullptr) return std::chrono::steady_clock::time_point::max();
  return core_->next_deadline();
}

}  // namespace remora::volume
