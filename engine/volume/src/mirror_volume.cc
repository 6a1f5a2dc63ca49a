#include "mirror_volume.h"

#include <algorithm>
#include <new>
#include <string>
#include <thread>
#include <utility>

#include "engine_member_opener.h"
#include "mirror_layout.h"

namespace remora::volume::detail {

using remora::detail::MutexLock;

namespace {

MirrorOptions mirror_options(const VolumeOptions& options) {
  MirrorOptions made;
  made.transport = options.transport;
  made.partial = options.partial;
  if (options.on_event)
    made.on_event = [handler = options.on_event](const VolumeEvent& event) {
      try {
        handler(event);
      } catch (...) {
        // A handler must not throw; what it has thrown does not concern the operation.
      }
    };
  return made;
}

std::shared_ptr<MemberOpener> reading_opener(const Engine& engine, const Cluster& cluster,
                                             const VolumeLayout& layout,
                                             const VolumeOptions& options) {
  return std::make_shared<EngineMemberOpener>(engine, cluster, options.transport, Rights::kRead,
                                              mirror_region_bytes(layout.volume.group_bytes),
                                              MirrorOptions{}.member_limit);
}

}  // namespace

Result<std::unique_ptr<MirrorVolume>> MirrorVolume::open(const Engine& engine,
                                                         const Cluster& cluster,
                                                         const VolumeLayout& layout,
                                                         const VolumeOptions& options) {
  constexpr Operation kOpenMirror{"open volume"};
  if (options.transport == TransportKind::kShm)
    return Error{Code::kUnsupported, kOpenMirror}.with_subject(
        layout.volume.name + ", transport=shm: members are opened over rdma or tcp");
  const auto map = StripeMap::of(layout.volume);
  if (!map) return map.error();
  if (layout.groups.size() != map->group_count())
    return Error{Code::kProtocol, kOpenMirror}.with_subject(layout.volume.name +
                                                            ", the number of its groups");
  return std::make_unique<MirrorVolume>(engine, cluster, layout, *map, options);
}

MirrorVolume::MirrorVolume(const Engine& engine, const Cluster& cluster, const VolumeLayout& layout,
                           const StripeMap& map, const VolumeOptions& options)
    : engine_{engine},
      cluster_{cluster},
      layout_{layout},
      map_{map},
      options_{options},
      reader_{cluster, layout, reading_opener(engine, cluster, layout, options),
              mirror_options(options)} {}

MirrorVolume::~MirrorVolume() = default;

Status MirrorVolume::claim(const ClaimOptions& options) {
  const MutexLock lock{claiming_};
  if (writer_ != nullptr && !writer_->lost())
    return Error{Code::kAlreadyExists, "claim of a volume"}.with_subject(layout_.volume.name);
  MirrorOptions wanted = mirror_options(options_);
  wanted.steal = options.steal;
  wanted.exclusive = options.exclusive;
  wanted.identity = options.identity;
  auto claimed = MirrorWriter::claim(engine_, cluster_, layout_.volume.name, wanted);
  if (!claimed) return claimed.error();
  // It was removed since it was opened, and another one has its name: with other groups and units.
  if ((*claimed)->claim().volume().id != layout_.volume.id)
    return Error{Code::kStaleRegion, "claim of a volume"}.with_subject(
        layout_.volume.name + ", another volume of that name: open it again");
  if ((*claimed)->group_count() < map_.group_count())
    return Error{Code::kProtocol, "claim of a volume"}.with_subject(layout_.volume.name +
                                                                    ", the number of its groups");
  use_.close();
  static_cast<void>(use_.wait_quiet(Time::max()));
  writer_.swap(*claimed);
  use_.open();
  return {};
}

Status MirrorVolume::release() {
  const MutexLock lock{claiming_};
  if (writer_ == nullptr)
    return Error{Code::kNotFound, "claim of a volume"}.with_subject(layout_.volume.name);
  std::shared_ptr<MirrorWriter> ended;
  use_.close();
  static_cast<void>(use_.wait_quiet(Time::max()));
  writer_.swap(ended);
  use_.open();
  return ended->release();
}

std::shared_ptr<MirrorWriter> MirrorVolume::writer() const {
  const GateEntry inside{use_, Time::max()};
  return writer_;
}

MirrorVolume::Time MirrorVolume::until(std::chrono::nanoseconds deadline) const noexcept {
  const auto limit = deadline.count() != 0 ? deadline : options_.operation_deadline;
  return Time::clock::now() + std::clamp(limit, kDeadlineFloor, kDeadlineCeiling);
}

Error MirrorVolume::named(const Error& error, std::uint32_t group, ByteOffset at,
                          std::uint64_t length_bytes) const {
  return error
      .with_subject(layout_.volume.name + ", group " + std::to_string(group) + ", " +
                    std::string{error.subject()})
      .with_place(at.bytes, length_bytes);
}

Error MirrorVolume::outside(Operation operation, ByteOffset at, std::uint64_t length_bytes) const {
  return Error{Code::kOutOfRange, operation}
      .with_place(at.bytes, length_bytes)
      .with_subject(layout_.volume.name + ", a volume of " + std::to_string(map_.size_bytes()) +
                    " bytes");
}

template <typename Part>
Status MirrorVolume::for_each_part(Operation operation, ByteOffset at, std::uint64_t length_bytes,
                                   const Part& part) const {
  if (length_bytes == 0)
    return Error{Code::kInvalidArgument, operation}.with_reason(Reason::kZeroLength);
  if (!map_.holds(at.bytes, length_bytes)) return outside(operation, at, length_bytes);
  for (std::uint64_t done = 0; done < length_bytes;) {
    const Place place = map_.place_of(at.bytes + done);
    const std::uint64_t in_zone = kZoneBytes - place.offset_bytes % kZoneBytes;
    const std::uint64_t length = std::min({length_bytes - done, place.left_bytes, in_zone});
    if (const Status status = part(place, done, length); !status)
      return named(status.error(), place.group, ByteOffset{at.bytes + done}, length);
    done += length;
  }
  return {};
}

template <typename Use>
Status MirrorVolume::with_group(Operation operation, std::uint32_t group, Time until,
                                const Use& use) {
  const GateEntry inside{use_, until};
  if (!inside) return Error{Code::kTimedOut, operation};
  if (writer_ == nullptr)
    return Error{Code::kNoRight, operation}.with_subject("a mirror that is not claimed");
  if (!writer_->group_open(group))
    return Error{Code::kStaleRegion, operation}.with_subject("not adopted");
  return use(writer_->group(group));
}

Status MirrorVolume::read(ByteOffset from, const Target& into, std::chrono::nanoseconds deadline) {
  if (into.bytes().data() == nullptr && !into.bytes().empty())
    return Error{Code::kInvalidArgument, "read"}.with_reason(Reason::kNullPointer);
  const Time end = until(deadline);
  return for_each_part(
      "read", from, into.bytes().size(),
      [&](const Place& place, std::uint64_t done, std::uint64_t length) -> Status {
        const Target part = into.part(done, length);
        {
          const GateEntry inside{use_, end};
          if (!inside) return Error{Code::kTimedOut, "read"};
          if (writer_ != nullptr && writer_->group_open(place.group) && !writer_->lost())
            return writer_->group(place.group).read(place.offset_bytes, part, end);
        }
        return reader_.read(place.group, place.offset_bytes, part, end);
      });
}

Status MirrorVolume::write(ByteOffset to, const Source& from, std::chrono::nanoseconds deadline) {
  if (from.bytes().data() == nullptr && !from.bytes().empty())
    return Error{Code::kInvalidArgument, "write"}.with_reason(Reason::kNullPointer);
  const Time end = until(deadline);
  return for_each_part("write", to, from.bytes().size(),
                       [&](const Place& place, std::uint64_t done, std::uint64_t length) {
                         return with_group("write", place.group, end, [&](MirrorGroup& group) {
                           return group.write(place.offset_bytes, from.part(done, length), end);
                         });
                       });
}

Status MirrorVolume::write_zeroes(ByteOffset at, std::uint64_t length_bytes,
                                  std::chrono::nanoseconds deadline) {
  const Time end = until(deadline);
  return for_each_part("write_zeroes", at, length_bytes,
                       [&](const Place& place, std::uint64_t /*done*/, std::uint64_t length) {
                         return with_group(
                             "write_zeroes", place.group, end, [&](MirrorGroup& group) {
                               return group.write_zeroes(place.offset_bytes, length, end);
                             });
                       });
}

template <typename Change>
Result<std::uint64_t> MirrorVolume::change_word(Operation operation, ByteOffset at,
                                                std::chrono::nanoseconds deadline,
                                                const Change& change) {
  constexpr std::uint64_t kBytes = sizeof(std::uint64_t);
  if (!map_.holds(at.bytes, kBytes)) return outside(operation, at, kBytes);
  if (at.bytes % kBytes != 0)
    return Error{Code::kMisaligned, operation}
        .with_subject(layout_.volume.name)
        .with_place(at.bytes, kBytes);
  const Time end = until(deadline);
  const Place place = map_.place_of(at.bytes);
  std::uint64_t before = 0;
  const Status done = with_group(operation, place.group, end, [&](MirrorGroup& group) -> Status {
    const auto value = change(group, place.offset_bytes, end);
    if (!value) return value.error();
    before = *value;
    return {};
  });
  if (!done) return named(done.error(), place.group, at, kBytes);
  return before;
}

Result<std::uint64_t> MirrorVolume::compare_swap(ByteOffset at, std::uint64_t expected,
                                                 std::uint64_t desired,
                                                 std::chrono::nanoseconds deadline) {
  return change_word("compare_swap", at, deadline,
                     [&](MirrorGroup& group, std::uint64_t offset, Time end) {
                       return group.compare_swap(offset, expected, desired, end);
                     });
}

Result<std::uint64_t> MirrorVolume::fetch_add(ByteOffset at, std::uint64_t delta,
                                              std::chrono::nanoseconds deadline) {
  return change_word("fetch_add", at, deadline,
                     [&](MirrorGroup& group, std::uint64_t offset, Time end) {
                       return group.fetch_add(offset, delta, end);
                     });
}

/// An acknowledged write of a mirror is visible to every reader already.
Status MirrorVolume::flush_visible() { return {}; }

Status MirrorVolume::settled(std::chrono::nanoseconds deadline) {
  constexpr std::chrono::milliseconds kPause{5};
  const Time end = Time::clock::now() + std::clamp(deadline, kDeadlineFloor, kDeadlineCeiling);
  while (true) {
    {
      const GateEntry inside{use_, end};
      if (!inside) return Error{Code::kTimedOut, "settled"};
      if (writer_ == nullptr) return {};
      if (writer_->lost()) return writer_->claim().lost_error();
      bool all = true;
      for (std::uint32_t group = 0; group < writer_->group_count(); ++group)
        all = all && !(writer_->group_open(group) && writer_->group(group).unresolved().any());
      if (all) return {};
    }
    if (Time::clock::now() >= end) return Error{Code::kTimedOut, "settled"};
    std::this_thread::sleep_for(kPause);
  }
}

std::vector<GroupState> MirrorVolume::groups() const {
  const auto claimed = writer();
  std::vector<GroupState> found;
  for (std::uint32_t i = 0; i < layout_.groups.size(); ++i) {
    const bool open = claimed != nullptr && claimed->group_open(i);
    const GroupRecord group = open ? claimed->group(i).record() : layout_.groups[i];
    GroupState state;
    state.index = i;
    if (!group.members.empty()) {
      state.server = group.members.front().server;
      state.region = group.members.front().region;
    }
    if (claimed != nullptr && !open) state.health = GroupHealth::kLost;
    state.connected = open ? claimed->group(i).control().roles().may_post : reader_.is_open(i);
    found.push_back(std::move(state));
  }
  return found;
}

}  // namespace remora::volume::detail
