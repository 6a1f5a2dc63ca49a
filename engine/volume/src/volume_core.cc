#include "volume_core.h"

#include <algorithm>
#include <new>
#include <utility>

#include "mirror_volume.h"
#include "volume_queue_core.h"

namespace remora::volume {

std::string_view to_string(VolumeEventKind kind) noexcept {
  switch (kind) {
    case VolumeEventKind::kGroupLost: return "group lost";
    case VolumeEventKind::kGroupUnreachable: return "group unreachable";
    case VolumeEventKind::kGroupRevoked: return "group revoked";
    case VolumeEventKind::kMemberRemoved: return "member removed";
    case VolumeEventKind::kWriterLost: return "writer lost";
    case VolumeEventKind::kCopyBegun: return "copy begun";
    case VolumeEventKind::kCopyDone: return "copy done";
    case VolumeEventKind::kCopyFailed: return "copy failed";
  }
  return "unknown event";
}

std::string_view to_string(GroupHealth health) noexcept {
  switch (health) {
    case GroupHealth::kOk: return "ok";
    case GroupHealth::kUnreachable: return "unreachable";
    case GroupHealth::kLost: return "lost";
    case GroupHealth::kRevoked: return "revoked";
  }
  return "unknown health";
}

}  // namespace remora::volume

namespace remora::volume::detail {

namespace {

/// The event that a failed operation tells of.
std::optional<VolumeEventKind> event_of(const Error& error, const Region& region) noexcept {
  switch (error.code()) {
    case Code::kStaleRegion: return VolumeEventKind::kGroupLost;
    case Code::kAccessRefused:
      if (error.reason() == Reason::kFenced || error.reason() == Reason::kRevoked)
        return VolumeEventKind::kGroupRevoked;
      return std::nullopt;
    case Code::kConnectionLost:
    case Code::kUnreachable:
    case Code::kConnectionRefused:
    case Code::kTimedOut:
    case Code::kIndeterminate:
      if (!region.connected()) return VolumeEventKind::kGroupUnreachable;
      return std::nullopt;
    default: return std::nullopt;
  }
}

constexpr std::uint8_t bit_of(VolumeEventKind kind) noexcept {
  return static_cast<std::uint8_t>(1U << static_cast<unsigned>(kind));
}

}  // namespace

VolumeCore::VolumeCore(VolumeRecord record, const StripeMap& map, std::vector<Region> regions,
                       std::vector<OpenMember> members, VolumeOptions options,
                       std::shared_ptr<VolumeMetrics> metrics, std::uint64_t revision)
    : record_{std::move(record)},
      map_{map},
      regions_{std::move(regions)},
      members_{std::move(members)},
      options_{std::move(options)},
      reported_{new std::atomic<std::uint8_t>[regions_.size()] {}},
      metrics_{std::move(metrics)} {
  REMORA_ASSERT(regions_.size() == map_.group_count() && members_.size() == regions_.size(),
                "each group of an open volume has a region and a member");
  for (std::uint32_t group = 0; group < members_.size(); ++group) {
    if (!members_[group].error) continue;
    if (const auto kind = event_of(*members_[group].error, regions_[group]))
      report(*kind, group, *members_[group].error);
  }
  // The last statement: a scrape may look at the volume from here on.
  if (metrics_ != nullptr) metrics_->add(*this, revision);
}

VolumeCore::~VolumeCore() {
  if (metrics_ != nullptr) metrics_->remove(*this);
}

GroupHealth VolumeCore::health(std::uint32_t group) const noexcept {
  const std::uint8_t seen = reported_[group].load(std::memory_order_relaxed);
  if ((seen & bit_of(VolumeEventKind::kGroupLost)) != 0) return GroupHealth::kLost;
  if ((seen & bit_of(VolumeEventKind::kGroupRevoked)) != 0) return GroupHealth::kRevoked;
  return regions_[group].connected() ? GroupHealth::kOk : GroupHealth::kUnreachable;
}

std::size_t VolumeCore::count(GroupHealth wanted) const noexcept {
  std::size_t found = 0;
  for (std::uint32_t group = 0; group < members_.size(); ++group)
    if (health(group) == wanted) ++found;
  return found;
}

VolumeCore::VolumeCore(VolumeRecord record, std::unique_ptr<MirrorVolume> mirror,
                       VolumeOptions options, std::shared_ptr<VolumeMetrics> metrics,
                       std::optional<remora::detail::EngineShare> engine)
    : record_{std::move(record)},
      map_{StripeMap::none()},
      options_{std::move(options)},
      metrics_{std::move(metrics)},
      mirror_{std::move(mirror)},
      engine_{std::move(engine)} {
  if (metrics_ != nullptr) metrics_->add(*this, VolumeMetrics::kFollowsItsGroups);
}

/// The mirror makes texts of errors, which may find no memory.
template <typename Call>
auto VolumeCore::on_mirror(const Call& call) noexcept -> decltype(call()) {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    return Error{Code::kOutOfMemory, "mirror"};
  }
}

std::chrono::steady_clock::time_point VolumeCore::until(
    std::chrono::nanoseconds deadline) const noexcept {
  return std::chrono::steady_clock::now() +
         std::clamp(limit(deadline), kDeadlineFloor, kDeadlineCeiling);
}

std::vector<GroupState> VolumeCore::groups() const {
  if (mirror_ != nullptr) return mirror_->groups();
  std::vector<GroupState> found;
  found.reserve(members_.size());
  for (std::uint32_t group = 0; group < members_.size(); ++group) {
    const OpenMember& member = members_[group];
    found.push_back({.index = group,
                     .server = member.server,
                     .region = member.region,
                     .transport = regions_[group].transport(),
                     .copies = 1,
                     .connected = regions_[group].connected(),
                     .health = health(group),
                     .error = member.error ? member.error->message() : std::string{}});
  }
  return found;
}

std::string VolumeCore::name_of(std::uint32_t group) const {
  return record_.name + ", group " + std::to_string(group) + ", member " + members_[group].server;
}

Error VolumeCore::named(const Error& error, std::uint32_t group, ByteOffset at,
                        std::uint64_t length_bytes) noexcept {
  // A region that is not open answers that it was moved from.
  const std::optional<Error>& absent = members_[group].error;
  Error named = absent ? *absent : error;
  try {
    named = named.with_subject(name_of(group));
  } catch (const std::bad_alloc&) {
    named = named.with_subject("a volume");
  }
  if (length_bytes != 0) named = named.with_place(at.bytes, length_bytes);
  if (!absent)
    if (const auto kind = event_of(named, regions_[group])) report(*kind, group, named);
  return named;
}

Error VolumeCore::outside(Operation operation, ByteOffset at,
                          std::uint64_t length_bytes) const noexcept {
  const Error named = Error{Code::kOutOfRange, operation}.with_place(at.bytes, length_bytes);
  try {
    return named.with_subject(record_.name + ", a volume of " + std::to_string(map_.size_bytes()) +
                              " bytes");
  } catch (const std::bad_alloc&) {
    return named.with_subject("a volume");
  }
}

Error VolumeCore::no_word(Operation operation, ByteOffset at) const noexcept {
  constexpr std::uint64_t kBytes = sizeof(std::uint64_t);
  if (!map_.holds(at.bytes, kBytes)) return outside(operation, at, kBytes);
  return Error{Code::kMisaligned, operation}
      .with_subject(record_.name)
      .with_place(at.bytes, kBytes);
}

Error VolumeCore::why_closed(std::uint32_t group, ByteOffset at,
                             std::uint64_t length_bytes) noexcept {
  // The session has ended: any operation says how, at once.
  const Status probe = regions_[group].flush_visible(kDeadlineFloor);
  const Error error = probe ? Error{Code::kConnectionLost, "queue"} : probe.error();
  return named(error, group, at, length_bytes);
}

std::uint32_t VolumeCore::any_open() const noexcept {
  for (std::uint32_t group = 0; group < members_.size(); ++group)
    if (!members_[group].error) return group;
  return 0;
}

Error VolumeCore::refuse_empty(const Target& into) noexcept {
  const std::uint32_t group = any_open();
  return named(regions_[group].read(ByteOffset{0}, into).error(), group, ByteOffset{0}, 0);
}

Error VolumeCore::refuse_empty(const Source& from) noexcept {
  const std::uint32_t group = any_open();
  return named(regions_[group].write(ByteOffset{0}, from).error(), group, ByteOffset{0}, 0);
}

Error VolumeCore::refuse_no_zeroes() noexcept {
  const std::uint32_t group = any_open();
  return named(regions_[group].write_zeroes(ByteOffset{0}, 0).error(), group, ByteOffset{0}, 0);
}

void VolumeCore::report(VolumeEventKind kind, std::uint32_t group, const Error& error) noexcept {
  const std::uint8_t bit = bit_of(kind);
  if ((reported_[group].fetch_or(bit, std::memory_order_relaxed) & bit) != 0) return;
  if (!options_.on_event) return;
  try {
    options_.on_event(
        {.kind = kind, .group = group, .server = members_[group].server, .error = error});
  } catch (...) {
    // A handler must not throw; what it has thrown does not concern the operation.
  }
}

/// Carries out one operation of several parts, which `take` adds to a queue.
template <typename Take>
Status VolumeCore::run_queued(std::chrono::nanoseconds deadline, const Take& take) noexcept {
  const std::chrono::nanoseconds within = limit(deadline);
  std::unique_ptr<VolumeQueueCore> queue = kept_.take();
  if (queue == nullptr || queue->deadline() != within) {
    auto made = VolumeQueueCore::create(*this, {.depth = 1, .deadline = within});
    if (!made) return made.error();
    queue = std::move(*made);
  }
  take(*queue);
  queue->submit().value();
  Status status;
  for (const VolumeCompletion& completion : queue->wait(1))
    if (!completion.ok()) status = completion.error();
  kept_.put(std::move(queue));
  return status;
}

Status VolumeCore::read(ByteOffset from, const Target& into,
                        std::chrono::nanoseconds deadline) noexcept {
  const std::uint64_t length_bytes = into.bytes().size();
  if (!map_.in_one_unit(from.bytes, length_bytes)) [[unlikely]] {
    if (mirror_ != nullptr)
      return on_mirror([&] { return mirror_->read(from, into, until(deadline)); });
    if (length_bytes == 0) return refuse_empty(into);
    if (!map_.holds(from.bytes, length_bytes)) return outside("read", from, length_bytes);
    return run_queued(deadline, [&](VolumeQueueCore& queue) { queue.read(from, into, 0); });
  }
  const Place place = map_.place_of(from.bytes);
  Status status = regions_[place.group].read(ByteOffset{place.offset_bytes}, into, limit(deadline));
  if (!status) [[unlikely]]
    status = named(status.error(), place.group, from, length_bytes);
  return status;
}

Status VolumeCore::write(ByteOffset to, const Source& from,
                         std::chrono::nanoseconds deadline) noexcept {
  const std::uint64_t length_bytes = from.bytes().size();
  if (!map_.in_one_unit(to.bytes, length_bytes)) [[unlikely]] {
    if (mirror_ != nullptr)
      return on_mirror([&] { return mirror_->write(to, from, until(deadline)); });
    if (length_bytes == 0) return refuse_empty(from);
    if (!map_.holds(to.bytes, length_bytes)) return outside("write", to, length_bytes);
    return run_queued(deadline, [&](VolumeQueueCore& queue) { queue.write(to, from, 0); });
  }
  const Place place = map_.place_of(to.bytes);
  Status status =
      regions_[place.group].write(ByteOffset{place.offset_bytes}, from, limit(deadline));
  if (!status) [[unlikely]]
    status = named(status.error(), place.group, to, length_bytes);
  return status;
}

Status VolumeCore::write_zeroes(ByteOffset at, std::uint64_t length_bytes,
                                std::chrono::nanoseconds deadline) noexcept {
  if (!map_.in_one_unit(at.bytes, length_bytes)) [[unlikely]] {
    if (mirror_ != nullptr)
      return on_mirror([&] { return mirror_->write_zeroes(at, length_bytes, until(deadline)); });
    if (length_bytes == 0) return refuse_no_zeroes();
    if (!map_.holds(at.bytes, length_bytes)) return outside("write_zeroes", at, length_bytes);
    return run_queued(deadline,
                      [&](VolumeQueueCore& queue) { queue.write_zeroes(at, length_bytes, 0); });
  }
  const Place place = map_.place_of(at.bytes);
  Status status = regions_[place.group].write_zeroes(ByteOffset{place.offset_bytes}, length_bytes,
                                                     limit(deadline));
  if (!status) [[unlikely]]
    status = named(status.error(), place.group, at, length_bytes);
  return status;
}

Status VolumeCore::flush_visible(std::chrono::nanoseconds deadline) noexcept {
  if (mirror_ != nullptr) return on_mirror([&] { return mirror_->flush_visible(); });
  return run_queued(deadline, [](VolumeQueueCore& queue) { queue.flush_visible(0); });
}

Status VolumeCore::settled(std::chrono::nanoseconds deadline) noexcept {
  if (mirror_ != nullptr) return on_mirror([&] { return mirror_->settled(deadline); });
  using Clock = std::chrono::steady_clock;
  const Clock::time_point began = Clock::now();
  Status all;
  for (std::uint32_t group = 0; group < regions_.size(); ++group) {
    if (members_[group].error) continue;
    const auto left = std::max(deadline - (Clock::now() - began), std::chrono::nanoseconds{0});
    // Each group that is unreachable would take the shortest deadline, and there may be thousands.
    if (!all.ok() && left.count() == 0) break;
    const Status settled = regions_[group].settled(left);
    if (!settled && all.ok()) all = named(settled.error(), group, ByteOffset{0}, 0);
  }
  return all;
}

Result<std::uint64_t> VolumeCore::compare_swap(ByteOffset at, std::uint64_t expected,
                                               std::uint64_t desired,
                                               std::chrono::nanoseconds deadline) noexcept {
  constexpr std::uint64_t kBytes = sizeof(std::uint64_t);
  if (!map_.holds(at.bytes, kBytes) || at.bytes % kBytes != 0) [[unlikely]] {
    if (mirror_ != nullptr)
      return on_mirror(
          [&] { return mirror_->compare_swap(at, expected, desired, until(deadline)); });
    return no_word("compare_swap", at);
  }
  const Place place = map_.place_of(at.bytes);
  auto before = regions_[place.group].compare_swap(ByteOffset{place.offset_bytes}, expected,
                                                   desired, limit(deadline));
  if (!before) [[unlikely]]
    return named(before.error(), place.group, at, kBytes);
  return before;
}

Result<std::uint64_t> VolumeCore::fetch_add(ByteOffset at, std::uint64_t delta,
                                            std::chrono::nanoseconds deadline) noexcept {
  constexpr std::uint64_t kBytes = sizeof(std::uint64_t);
  if (!map_.holds(at.bytes, kBytes) || at.bytes % kBytes != 0) [[unlikely]] {
    if (mirror_ != nullptr)
      return on_mirror([&] { return mirror_->fetch_add(at, delta, until(deadline)); });
    return no_word("fetch_add", at);
  }
  const Place place = map_.place_of(at.bytes);
  auto before =
      regions_[place.group].fetch_add(ByteOffset{place.offset_bytes}, delta, limit(deadline));
  if (!before) [[unlikely]]
    return named(before.error(), place.group, at, kBytes);
  return before;
}

}  // namespace remora::volume::detail
