/// The functions of a volume's queue. volume_queue_core.cc has take_read() and take_write(), into
/// which the function of its core is inlined.

#include <limits>
#include <utility>

#include <remora/volume/volume_queue.h>

#include "mirror_queue.h"
#include "volume_core.h"
#include "volume_queue_core.h"

namespace remora::volume {

namespace {

/// Of a queue that was moved from.
constexpr detail::VolumeQueueRoom kNoRoom{};

using Striped = remora::detail::OwnedUnique<detail::VolumeQueueCore>;
using Mirror = remora::detail::OwnedUnique<detail::MirrorQueue>;

Error closed_queue(Operation operation, const Striped& striped, const Mirror& mirror) noexcept {
  return remora::detail::closed_handle(operation, striped.foreign() || mirror.foreign());
}

/// Calls `use` with the queue that there is; returns `none` if there is none.
template <typename Value, typename Use>
Value with_queue(const Striped& striped, const Mirror& mirror, Value none,
                 const Use& use) noexcept {
  if (striped != nullptr) [[likely]]
    return use(*striped);
  if (mirror != nullptr) return use(*mirror);
  return none;
}

}  // namespace

VolumeQueue::VolumeQueue(std::unique_ptr<detail::VolumeQueueCore> core) noexcept
    : core_{std::move(core)}, room_{&core_->room()} {}
VolumeQueue::VolumeQueue(std::unique_ptr<detail::MirrorQueue> mirror) noexcept
    : mirror_{std::move(mirror)}, room_{&mirror_->room()} {}
VolumeQueue::~VolumeQueue() = default;
VolumeQueue::VolumeQueue(VolumeQueue&& other) noexcept
    : core_{std::move(other.core_)},
      mirror_{std::move(other.mirror_)},
      room_{std::exchange(other.room_, &kNoRoom)} {}
VolumeQueue& VolumeQueue::operator=(VolumeQueue&& other) noexcept {
  if (this == &other) return *this;
  core_ = std::move(other.core_);
  mirror_ = std::move(other.mirror_);
  room_ = std::exchange(other.room_, &kNoRoom);
  return *this;
}

/// An offset that is out of range for a block that does not exist.
ByteOffset VolumeQueue::offset_of(Block block) const noexcept {
  std::uint64_t offset = 0;
  const std::uint64_t block_bytes =
      with_queue(core_, mirror_, std::uint64_t{0},
                 [](const auto& queue) { return queue.volume().record().block_bytes; });
  if (__builtin_mul_overflow(block.index, block_bytes, &offset))
    return ByteOffset{std::numeric_limits<std::uint64_t>::max()};
  return ByteOffset{offset};
}

bool VolumeQueue::read(Block from, const Target& into, std::uint64_t tag) noexcept {
  return read(offset_of(from), into, tag);
}
bool VolumeQueue::write(Block to, const Source& from, std::uint64_t tag) noexcept {
  return write(offset_of(to), from, tag);
}
bool VolumeQueue::write_zeroes(ByteOffset at, std::uint64_t length_bytes,
                               std::uint64_t tag) noexcept {
  return with_queue(core_, mirror_, false,
                    [&](auto& queue) { return queue.write_zeroes(at, length_bytes, tag); });
}
bool VolumeQueue::flush_visible(std::uint64_t tag) noexcept {
  return with_queue(core_, mirror_, false, [&](auto& queue) { return queue.flush_visible(tag); });
}
bool VolumeQueue::compare_swap(ByteOffset at, std::uint64_t expected, std::uint64_t desired,
                               std::uint64_t tag) noexcept {
  return with_queue(core_, mirror_, false,
                    [&](auto& queue) { return queue.compare_swap(at, expected, desired, tag); });
}
bool VolumeQueue::fetch_add(ByteOffset at, std::uint64_t delta, std::uint64_t tag) noexcept {
  return with_queue(core_, mirror_, false,
                    [&](auto& queue) { return queue.fetch_add(at, delta, tag); });
}

Status VolumeQueue::submit() noexcept {
  if (core_ != nullptr) [[likely]]
    return core_->submit();
  if (mirror_ != nullptr) return mirror_->submit();
  return closed_queue("submit", core_, mirror_);
}

VolumeCompletions VolumeQueue::wait(std::size_t at_least) noexcept {
  return with_queue(core_, mirror_, VolumeCompletions{},
                    [&](auto& queue) { return queue.wait(at_least); });
}

Result<int> VolumeQueue::event_fd() noexcept {
  if (core_ != nullptr) return core_->event_fd();
  if (mirror_ != nullptr) return mirror_->event_fd();
  return closed_queue("event_fd", core_, mirror_);
}

VolumeCompletions VolumeQueue::progress() noexcept {
  return with_queue(core_, mirror_, VolumeCompletions{},
                    [](auto& queue) { return queue.progress(); });
}

std::chrono::steady_clock::time_point VolumeQueue::next_deadline() const noexcept {
  return with_queue(core_, mirror_, std::chrono::steady_clock::time_point::max(),
                    [](const auto& queue) { return queue.next_deadline(); });
}

}  // namespace remora::volume
