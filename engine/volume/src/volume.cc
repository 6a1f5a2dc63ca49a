#include <limits>
#include <new>
#include <utility>

#include <remora/engine/engine_share.h>
#include <remora/volume/volume.h>

#include "mirror_queue.h"
#include "mirror_volume.h"
#include "volume_core.h"
#include "volume_opener.h"
#include "volume_queue_core.h"

namespace remora::volume {

namespace {

Error closed_volume(Operation operation,
                    const remora::detail::OwnedShared<detail::VolumeCore>& core) noexcept {
  return remora::detail::closed_handle(operation, core.foreign());
}

}  // namespace

Result<Volume> Volume::open(const Engine& engine, const VolumeLayout& layout,
                            const VolumeOptions& options) {
  try {
    auto core = detail::VolumeOpener{engine, layout, options}.open();
    if (!core) return core.error();
    return Volume{std::move(*core)};
  } catch (const std::bad_alloc&) {
    return Error{Code::kOutOfMemory, "open volume"}.with_subject(layout.volume.name);
  }
}

Result<Volume> Volume::open(const Engine& engine, const Cluster& cluster, std::string_view name,
                            const VolumeOptions& options) {
  const auto layout = cluster.layout(name);
  if (!layout) return layout.error();
  if (layout->volume.kind != Kind::kMirror) return open(engine, *layout, options);
  try {
    auto mirror = detail::MirrorVolume::open(engine, cluster, *layout, options);
    if (!mirror) return mirror.error();
    return Volume{std::make_shared<detail::VolumeCore>(layout->volume, std::move(*mirror), options,
                                                       detail::VolumeMetrics::of(engine.registry()),
                                                       remora::detail::EngineShare{engine})};
  } catch (const std::bad_alloc&) {
    return Error{Code::kOutOfMemory, "open volume"}.with_subject(layout->volume.name);
  }
}

Volume::Volume(std::shared_ptr<detail::VolumeCore> core) noexcept : core_{std::move(core)} {}

const VolumeRecord& Volume::record() const noexcept {
  if (core_ != nullptr) [[likely]]
    return core_->record();
  static const VolumeRecord none = [] {
    VolumeRecord empty;
    empty.group_bytes = empty.stripe_bytes = 0;
    return empty;
  }();
  return none;
}

Rights Volume::rights() const noexcept {
  return core_ == nullptr ? Rights::kNone : core_->options().rights;
}

std::vector<GroupState> Volume::groups() const {
  if (core_ == nullptr) return {};
  return core_->groups();
}

Result<VolumeQueue> Volume::queue(const QueueOptions& options) const {
  if (core_ == nullptr) return closed_volume("queue", core_);
  if (core_->mirror() != nullptr) {
    auto mirror = detail::MirrorQueue::create(core_.pointer(), options);
    if (!mirror) return mirror.error();
    return VolumeQueue{std::move(*mirror)};
  }
  auto made = detail::VolumeQueueCore::create(*core_, options, core_.pointer());
  if (!made) return made.error();
  return VolumeQueue{std::move(*made)};
}

Status Volume::claim(const ClaimOptions& options) const {
  if (core_ == nullptr) return closed_volume("claim of a volume", core_);
  if (core_->mirror() == nullptr)
    return Error{Code::kUnsupported, "claim of a volume"}.with_subject(
        record().name + ", a striped volume needs no claim");
  if ((core_->options().rights & (Rights::kWrite | Rights::kAtomic)) == Rights::kNone)
    return Error{Code::kNoRight, "claim of a volume"}.with_subject(
        record().name + ", opened without the right to write");
  try {
    return core_->mirror()->claim(options);
  } catch (const std::bad_alloc&) {
    return Error{Code::kOutOfMemory, "claim of a volume"}.with_subject(record().name);
  }
}

Status Volume::release() const {
  if (core_ == nullptr) return closed_volume("claim of a volume", core_);
  if (core_->mirror() == nullptr)
    return Error{Code::kNotFound, "claim of a volume"}.with_subject(record().name);
  try {
    return core_->mirror()->release();
  } catch (const std::bad_alloc&) {
    return Error{Code::kOutOfMemory, "claim of a volume"}.with_subject(record().name);
  }
}

bool Volume::claimed() const {
  if (core_ == nullptr || core_->mirror() == nullptr) return false;
  const auto writer = core_->mirror()->writer();
  return writer != nullptr && !writer->lost();
}

namespace detail {

std::shared_ptr<MirrorWriter> mirror_writer_of(const Volume& volume) {
  MirrorVolume* const mirror = volume.core_ == nullptr ? nullptr : volume.core_->mirror();
  return mirror == nullptr ? nullptr : mirror->writer();
}

Result<std::shared_ptr<VolumeCore>> core_of(const Volume& volume, Operation operation) {
  if (volume.core_ == nullptr) return closed_volume(operation, volume.core_);
  return volume.core_.pointer();
}

}  // namespace detail

/// An offset that is out of range for a block that does not exist.
ByteOffset Volume::offset_of(Block block) const noexcept {
  std::uint64_t offset = 0;
  if (__builtin_mul_overflow(block.index, record().block_bytes, &offset))
    return ByteOffset{std::numeric_limits<std::uint64_t>::max()};
  return ByteOffset{offset};
}

Status Volume::read(ByteOffset from, Target into, std::chrono::nanoseconds deadline) const {
  if (core_ == nullptr) [[unlikely]]
    return closed_volume("read", core_);
  return core_->read(from, into, deadline);
}
Status Volume::read(Block from, Target into, std::chrono::nanoseconds deadline) const {
  return read(offset_of(from), into, deadline);
}
Status Volume::write(ByteOffset to, Source from, std::chrono::nanoseconds deadline) const {
  if (core_ == nullptr) [[unlikely]]
    return closed_volume("write", core_);
  return core_->write(to, from, deadline);
}
Status Volume::write(Block to, Source from, std::chrono::nanoseconds deadline) const {
  return write(offset_of(to), from, deadline);
}
Status Volume::write_zeroes(ByteOffset at, std::uint64_t length_bytes,
                            std::chrono::nanoseconds deadline) const {
  if (core_ == nullptr) return closed_volume("write_zeroes", core_);
  return core_->write_zeroes(at, length_bytes, deadline);
}
Status Volume::flush_visible(std::chrono::nanoseconds deadline) const {
  if (core_ == nullptr) return closed_volume("flush_visible", core_);
  return core_->flush_visible(deadline);
}
Status Volume::settled(std::chrono::nanoseconds deadline) const {
  if (core_ == nullptr) return closed_volume("settled", core_);
  return core_->settled(deadline);
}
Result<std::uint64_t> Volume::compare_swap(ByteOffset at, std::uint64_t expected,
                                           std::uint64_t desired,
                                           std::chrono::nanoseconds deadline) const {
  if (core_ == nullptr) return closed_volume("compare_swap", core_);
  return core_->compare_swap(at, expected, desired, deadline);
}
Result<std::uint64_t> Volume::fetch_add(ByteOffset at, std::uint64_t delta,
                                        std::chrono::nanoseconds deadline) const {
  if (core_ == nullptr) return closed_volume("fetch_add", core_);
  return core_->fetch_add(at, delta, deadline);
}

}  // namespace remora::volume
