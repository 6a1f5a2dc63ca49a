#include "mirror_reader.h"

#include <algorithm>
#include <array>
#include <string>
#include <thread>
#include <utility>

#include <remora/assert.h>

#include "group_changes.h"
#include "mirror_layout.h"

namespace remora::volume::detail {

using remora::detail::MutexLock;

namespace {

constexpr Operation kReadMirror{"read of a mirror"};

/// Whether another try cannot be better.
bool is_final(const Error& error) noexcept {
  if (error.reason() == Reason::kVersion) return true;
  return error.operation() == kReadMirror.text() && error.code() != Code::kWouldBlock;
}

/// What kept the read waiting until its deadline.
Status out_of_time(const Status& last) {
  if (last.error().code() != Code::kWouldBlock) return last;
  return Error{Code::kTimedOut, kReadMirror}.with_subject(last.error().subject());
}

}  // namespace

MirrorReader::MirrorReader(const Cluster& cluster, const VolumeLayout& layout,
                           std::shared_ptr<MemberOpener> opener, const MirrorOptions& options)
    : cluster_{cluster},
      volume_{layout.volume},
      data_offset_{mirror_data_offset(layout.volume.group_bytes)},
      opener_{std::move(opener)},
      options_{options} {
  for (std::size_t i = 0; i < layout.groups.size(); ++i)
    groups_.push_back(std::make_unique<Group>());
}

std::shared_ptr<MirrorReader::View> MirrorReader::view_of(const Group& group) const {
  const MutexLock lock{group.mutex};
  return group.view;
}

std::chrono::nanoseconds MirrorReader::age_of(const View& view) const noexcept {
  return options_.clock->now() -
         std::chrono::nanoseconds{view.confirmed_at.load(std::memory_order_acquire)};
}

bool MirrorReader::is_open(std::uint32_t group) const {
  const auto view = view_of(*groups_[group]);
  return view != nullptr && view->primary->connected();
}

TransportKind MirrorReader::transport(std::uint32_t group) const {
  const auto view = view_of(*groups_[group]);
  return view == nullptr ? TransportKind::kAuto : view->primary->transport();
}

Result<GroupRecord> MirrorReader::readable(const Snapshot& snapshot,
                                           const std::string& group_key) const {
  const auto gone = [&](const char* what) {
    return Error{Code::kStaleRegion, kReadMirror}.with_subject(volume_.name + ", " + what);
  };
  const Entry* const generation = snapshot.find(cluster_.keys().generation());
  const Entry* const volume = snapshot.find(cluster_.keys().volume(volume_.name));
  const Entry* const group = snapshot.find(group_key);
  if (generation == nullptr || volume == nullptr || group == nullptr)
    return gone("removed, or the store was restored without it");
  const auto present = parse_generation(generation->key, generation->value);
  if (!present) return present.error();
  const auto record = parse_volume(volume->key, volume->value);
  if (!record) return record.error();
  if (record->id != volume_.id) return gone("another volume of that name");
  if (record->exclusive)
    return Error{Code::kBusy, kReadMirror}.with_subject(
        volume_.name + ", written and read by one client: " + record->writer);
  auto found = parse_group(group->key, group->value);
  if (!found) return found.error();
  if (found->lost || found->members.empty()) return gone("a group that is lost");
  // Rule 29, and a primary that changes: it passes.
  if (is_restored(*found, *present))
    return Error{Code::kWouldBlock, kReadMirror}.with_subject(
        volume_.name + ", whose store was restored: 'remora volume repair' adopts it");
  if (found->promoting)
    return Error{Code::kWouldBlock, kReadMirror}.with_subject(volume_.name +
                                                              ", whose primary changes");
  return found;
}

Status MirrorReader::refresh(std::uint32_t index, Group& group, Time until) {
  const MutexLock turn{group.refreshing};
  const auto before = view_of(group);
  if (before != nullptr && is_confirmed(*before) &&
      age_of(*before) < options_.times.refreshed_after())
    return {};  // another thread just has
  // Those before have each waited for a store or a server that does not answer.
  if (Time::clock::now() >= until)
    return Error{Code::kWouldBlock, kReadMirror}.with_subject(volume_.name);
  const std::string key = cluster_.keys().group(volume_.name, index);
  const std::array keys{cluster_.keys().generation(), cluster_.keys().volume(volume_.name), key};
  const auto sent = options_.clock->now();
  const auto snapshot = cluster_.store().get(keys, cluster_.limit());
  options_.metrics->confirmation(snapshot.ok(), options_.clock->now() - sent);
  if (!snapshot) return snapshot.error();
  const auto record = readable(*snapshot, key);
  if (!record) return record.error();
  const std::string& value = snapshot->find(key)->value;
  if (before != nullptr && before->value == value) {
    before->confirmed_at.store(sent.count(), std::memory_order_release);
    return {};
  }
  // Another configuration: its grant is used after the next confirmation (rule 4).
  const Member& member = record->members.front();
  auto primary = opener_->open(member);
  if (!primary) return primary.error().with_subject("member " + member.server);
  auto view = std::make_shared<View>();
  view->value = value;
  view->primary = std::move(*primary);
  const MutexLock lock{group.mutex};
  group.view = std::move(view);
  return {};
}

Status MirrorReader::read(std::uint32_t group, std::uint64_t offset_bytes, const Target& into,
                          Time until) {
  const MemberRead read{.offset_bytes = data_offset_ + offset_bytes, .into = into};
  return read_all(group, std::span{&read, 1}, until);
}

/// A failure of all may be that of one: of its memory, or of its deadline, which was that of all.
void MirrorReader::read_together(std::uint32_t group, std::span<GroupOperation> reads) {
  std::array<MemberRead, MemberLane::kOperationsMax> pieces;
  REMORA_ASSERT(reads.size() <= pieces.size(), "a lane has room for the operations");
  Time until = Time::max();
  for (std::size_t i = 0; i < reads.size(); ++i) {
    pieces[i] = {.offset_bytes = data_offset_ + reads[i].offset_bytes, .into = reads[i].into};
    until = std::min(until, reads[i].until);
  }
  const Status done = read_all(group, std::span{pieces}.first(reads.size()), until);
  const bool for_all = done || reads.size() == 1 ||
                       (is_final(done.error()) && done.error().code() != Code::kTimedOut);
  for (GroupOperation& each : reads)
    each.status = for_all || Time::clock::now() >= each.until
                      ? done
                      : read(group, each.offset_bytes, each.into, each.until);
}

Status MirrorReader::read_all(std::uint32_t index, std::span<const MemberRead> reads, Time until) {
  constexpr std::chrono::milliseconds kPause{10};
  Group& group = *groups_[index];
  Status last = Error{Code::kTimedOut, kReadMirror};
  while (true) {
    const auto view = view_of(group);
    if (view == nullptr || !is_confirmed(*view)) {
      if (Time::clock::now() >= until) return out_of_time(last);
      if (const Status done = refresh(index, group, until); !done) {
        if (is_final(done.error())) return done;
        last = done;
        std::this_thread::sleep_for(kPause);
      }
      continue;
    }
    if (age_of(*view) >= options_.times.refreshed_after()) {
      // In time before it ends; if that fails, the next read notices.
      static_cast<void>(refresh(index, group, until));
    }
    const Status done = view->primary->read_all(reads);
    if (done) {
      if (is_confirmed(*view)) return done;
      options_.metrics->read_repeated();
      continue;
    }
    last = done;
    if (done.error().code() == Code::kInvalidArgument || done.error().code() == Code::kProvider)
      return done;
    // The grant was taken away, or its server is gone: opens the primary of the present
    // configuration.
    {
      const MutexLock lock{group.mutex};
      if (group.view == view) group.view.reset();
    }
    if (Time::clock::now() >= until) return out_of_time(last);
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace remora::volume::detail
