#include "mirror_volume.h"

#include <algorithm>
#include <new>
#include <string>
#include <thread>
#include <utility>

#include "engine_member_opener.h"
#include "group_changes.h"
#include "mirror_layout.h"
#include "mirror_log.h"

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

void end_all(std::span<GroupOperation> operations, const Error& error) {
  for (GroupOperation& each : operations) each.status = error;
}

MirrorVolume::Time last_deadline(std::span<const GroupOperation> operations) {
  auto last = MirrorVolume::Time::min();
  for (const GroupOperation& each : operations) last = std::max(last, each.until);
  return last;
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
  MirrorOptions made = mirror_options(options);
  made.metrics = MirrorMetrics::of(engine.registry());
  auto make_opener = [share = remora::detail::EngineShare{engine}, cluster,
                      transport = options.transport, limit = made.member_limit,
                      bytes = mirror_region_bytes(layout.volume.group_bytes)](
                         Rights rights) -> std::shared_ptr<MemberOpener> {
    return std::make_shared<EngineMemberOpener>(share, cluster, transport, rights, bytes, limit);
  };
  return std::make_unique<MirrorVolume>(std::move(make_opener), cluster, layout, *map, made);
}

MirrorVolume::MirrorVolume(MakeOpener make_opener, const Cluster& cluster,
                           const VolumeLayout& layout, const StripeMap& map,
                           const MirrorOptions& options)
    : make_opener_{std::move(make_opener)},
      cluster_{cluster},
      layout_{layout},
      map_{map},
      options_{options},
      reader_{cluster, layout, make_opener_(Rights::kRead), options} {}

MirrorVolume::~MirrorVolume() = default;

Status MirrorVolume::claim(const ClaimOptions& options) {
  const MutexLock lock{claiming_};
  if (writer_ != nullptr && !writer_->lost())
    return Error{Code::kAlreadyExists, "claim of a volume"}.with_subject(layout_.volume.name);
  MirrorOptions wanted = options_;
  wanted.steal = options.steal;
  wanted.exclusive = options.exclusive;
  wanted.identity = options.identity;
  auto claimed =
      MirrorWriter::claim(make_opener_(Rights::kReadWrite), cluster_, layout_.volume.name, wanted);
  if (!claimed) return claimed.error();
  // It was removed since it was opened, and another one has its name: with other groups and units.
  if ((*claimed)->claim().volume().id != layout_.volume.id)
    return Error{Code::kStaleRegion, "claim of a volume"}.with_subject(
        layout_.volume.name + ", another volume of that name: open it again");
  if ((*claimed)->group_count() < map_.group_count())
    return Error{Code::kProtocol, "claim of a volume"}.with_subject(layout_.volume.name +
                                                                    ", the number of its groups");
  replace_writer(*claimed);
  // The one before has lost its claim. Its threads end here: a handler in one of them may have the
  // last reference otherwise, and a thread cannot wait for its own end.
  if (*claimed != nullptr) static_cast<void>((*claimed)->release());
  const std::vector<GroupState> found = groups();
  const auto degraded = std::count_if(found.begin(), found.end(), [&](const GroupState& each) {
    return each.health == GroupHealth::kOk && each.copies < layout_.volume.copies;
  });
  if (degraded != 0)
    log_claimed_degraded(layout_.volume.name, static_cast<std::size_t>(degraded), found.size());
  return {};
}

void MirrorVolume::replace_writer(std::shared_ptr<MirrorWriter>& other) {
  use_.close();
  static_cast<void>(use_.wait_quiet(Time::max()));
  {
    const MutexLock lock{replacing_};
    writer_.swap(other);
  }
  use_.open();
}

Status MirrorVolume::release() {
  const MutexLock lock{claiming_};
  if (writer_ == nullptr)
    return Error{Code::kNotFound, "claim of a volume"}.with_subject(layout_.volume.name);
  std::shared_ptr<MirrorWriter> ended;
  left_.store(Left::kUnknown, std::memory_order_release);
  replace_writer(ended);
  const Status done = ended->release();
  left_.store(ended->has_unresolved() ? Left::kUnresolved : Left::kNothing,
              std::memory_order_release);
  return done;
}

std::shared_ptr<MirrorWriter> MirrorVolume::writer() const {
  const MutexLock lock{replacing_};
  return writer_;
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

Place MirrorVolume::place_of(std::uint64_t offset_bytes) const noexcept {
  Place place = map_.place_of(offset_bytes);
  place.left_bytes = std::min(place.left_bytes, kZoneBytes - place.offset_bytes % kZoneBytes);
  return place;
}

Status MirrorVolume::check(Operation operation, ByteOffset at, std::uint64_t length_bytes) const {
  if (length_bytes == 0)
    return Error{Code::kInvalidArgument, operation}.with_reason(Reason::kZeroLength);
  if (!map_.holds(at.bytes, length_bytes)) return outside(operation, at, length_bytes);
  return {};
}

Status MirrorVolume::check_word(Operation operation, ByteOffset at) const {
  constexpr std::uint64_t kBytes = sizeof(std::uint64_t);
  if (!map_.holds(at.bytes, kBytes)) return outside(operation, at, kBytes);
  if (at.bytes % kBytes != 0)
    return Error{Code::kMisaligned, operation}
        .with_subject(layout_.volume.name)
        .with_place(at.bytes, kBytes);
  return {};
}

template <typename Part>
Status MirrorVolume::for_each_part(Operation operation, ByteOffset at, std::uint64_t length_bytes,
                                   const Part& part) const {
  if (const Status checked = check(operation, at, length_bytes); !checked) return checked;
  for (std::uint64_t done = 0; done < length_bytes;) {
    const Place place = place_of(at.bytes + done);
    const std::uint64_t length = std::min(length_bytes - done, place.left_bytes);
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

Status MirrorVolume::read(ByteOffset from, const Target& into, Time until) {
  if (into.bytes().data() == nullptr && !into.bytes().empty())
    return Error{Code::kInvalidArgument, "read"}.with_reason(Reason::kNullPointer);
  return for_each_part(
      "read", from, into.bytes().size(),
      [&](const Place& place, std::uint64_t done, std::uint64_t length) -> Status {
        const Target part = into.part(done, length);
        {
          const GateEntry inside{use_, until};
          if (!inside) return Error{Code::kTimedOut, "read"};
          if (writer_ != nullptr && writer_->group_open(place.group) && !writer_->lost())
            return writer_->group(place.group).read(place.offset_bytes, part, until);
        }
        return reader_.read(place.group, place.offset_bytes, part, until);
      });
}

Status MirrorVolume::write(ByteOffset to, const Source& from, Time until) {
  if (from.bytes().data() == nullptr && !from.bytes().empty())
    return Error{Code::kInvalidArgument, "write"}.with_reason(Reason::kNullPointer);
  return for_each_part("write", to, from.bytes().size(),
                       [&](const Place& place, std::uint64_t done, std::uint64_t length) {
                         return with_group("write", place.group, until, [&](MirrorGroup& group) {
                           return group.write(place.offset_bytes, from.part(done, length), until);
                         });
                       });
}

Status MirrorVolume::write_zeroes(ByteOffset at, std::uint64_t length_bytes, Time until) {
  return for_each_part("write_zeroes", at, length_bytes,
                       [&](const Place& place, std::uint64_t /*done*/, std::uint64_t length) {
                         return with_group(
                             "write_zeroes", place.group, until, [&](MirrorGroup& group) {
                               return group.write_zeroes(place.offset_bytes, length, until);
                             });
                       });
}

template <typename Change>
Result<std::uint64_t> MirrorVolume::change_word(Operation operation, ByteOffset at, Time until,
                                                const Change& change) {
  if (const Status checked = check_word(operation, at); !checked) return checked.error();
  const Place place = map_.place_of(at.bytes);
  std::uint64_t before = 0;
  const Status done = with_group(operation, place.group, until, [&](MirrorGroup& group) -> Status {
    const auto value = change(group, place.offset_bytes);
    if (!value) return value.error();
    before = *value;
    return {};
  });
  if (!done) return named(done.error(), place.group, at, sizeof before);
  return before;
}

Result<std::uint64_t> MirrorVolume::compare_swap(ByteOffset at, std::uint64_t expected,
                                                 std::uint64_t desired, Time until) {
  return change_word("compare_swap", at, until, [&](MirrorGroup& group, std::uint64_t offset) {
    return group.compare_swap(offset, expected, desired, until);
  });
}

Result<std::uint64_t> MirrorVolume::fetch_add(ByteOffset at, std::uint64_t delta, Time until) {
  return change_word("fetch_add", at, until, [&](MirrorGroup& group, std::uint64_t offset) {
    return group.fetch_add(offset, delta, until);
  });
}

void MirrorVolume::write_together(std::uint32_t group, std::span<GroupOperation> writes) {
  const Status done =
      with_group("write", group, last_deadline(writes), [&](MirrorGroup& open) -> Status {
        open.write_together(writes);
        return {};
      });
  if (!done) end_all(writes, done.error());
}

void MirrorVolume::read_together(std::uint32_t group, std::span<GroupOperation> reads) {
  {
    const GateEntry inside{use_, last_deadline(reads)};
    if (!inside) return end_all(reads, Error{Code::kTimedOut, "read"});
    if (writer_ != nullptr && writer_->group_open(group) && !writer_->lost())
      return writer_->group(group).read_together(reads);
  }
  reader_.read_together(group, reads);
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
      const Left left = left_.load(std::memory_order_acquire);
      if (writer_ == nullptr && left == Left::kNothing) return {};
      if (writer_ == nullptr && left == Left::kUnresolved)
        return Error{Code::kTimedOut, "settled"}.with_subject(
            layout_.volume.name +
            ", released before its members were equal: the next claim makes them so");
      if (writer_ != nullptr && writer_->lost()) return writer_->claim().lost_error();
      if (writer_ != nullptr && !writer_->has_unresolved()) return {};
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
    state.copies = claimed != nullptr && !open ? 0 : in_sync_count(group);
    state.transport = open ? claimed->group(i).control().transport() : reader_.transport(i);
    state.connected = open ? claimed->group(i).control().roles().may_post : reader_.is_open(i);
    found.push_back(std::move(state));
  }
  return found;
}

}  // namespace remora::volume::detail
