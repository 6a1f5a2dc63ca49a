/// Failures, freezes and headers. group_control_promotion.cc has promotions and members that come
/// in.

#include "group_control.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "group_changes.h"
#include "mirror_log.h"
#include "write_progress.h"

namespace remora::volume::detail {

using remora::detail::MutexLock;

namespace {

/// Failures of this process or of the call: no member is the cause.
bool is_local(const Error& error) noexcept {
  switch (error.code()) {
    case Code::kInvalidArgument:
    case Code::kOutOfRange:
    case Code::kMisaligned:
    case Code::kNoRight:
    case Code::kUnsupported:
    case Code::kOutOfMemory:
    case Code::kProvider:
    case Code::kSystem:
    case Code::kClosed: return true;
    default: return false;
  }
}

}  // namespace

GroupControl::GroupControl(GroupKey key, const std::vector<std::shared_ptr<MirrorMember>>& members,
                           const MirrorOptions& options, MemberOpener& opener)
    : options_{options}, opener_{opener}, key_{std::move(key)} {
  const MutexLock lock{mutex_};
  for (std::size_t i = 0; i < members.size(); ++i)
    slots_.put(i, key_.record().members[i], members[i]);
  if (key_.record().promoting) promotion_.since = options_.clock->now();  // rule 11
  update();
}

GroupRecord GroupControl::record() const {
  const MutexLock lock{mutex_};
  return key_.record();
}

TransportKind GroupControl::transport() const {
  const MutexLock lock{mutex_};  // a slot whose member has left may get another one
  const GroupRoles now = roles();
  TransportKind found = TransportKind::kAuto;
  now.in_sync.with(now.syncing).for_each([&](std::size_t slot) {
    if (found != TransportKind::kRdma) found = slots_.at(slot).transport();
  });
  return found;
}

bool GroupControl::lost() const {
  const MutexLock lock{mutex_};
  return key_.claim().lost();
}

Error GroupControl::too_late(const char* what) const {
  return Error{Code::kTimedOut, "group of a mirror"}.with_subject(what);
}

void GroupControl::note(VolumeEventKind kind, const std::string& server, const Error& error) {
  count_removed(server, error);
  events_.push_back({.kind = kind,
                     .group = static_cast<std::uint32_t>(key_.record().index),
                     .server = server,
                     .error = error});
}

void GroupControl::count_removed(const std::string& server, const Error& error) {
  options_.metrics->member_removed(error);
  log_member_removed(key_.claim().volume().name, key_.record().index, server, error);
}

void GroupControl::report() {
  std::vector<VolumeEvent> events;
  {
    const MutexLock lock{mutex_};
    events.swap(events_);
  }
  tell(events);
}

void GroupControl::tell(const std::vector<VolumeEvent>& events) const {
  if (!options_.on_event) return;
  for (const VolumeEvent& event : events) options_.on_event(event);
}

void GroupControl::begin_promotion() {
  const std::size_t old_primary = roles().primary;
  promotion_ = {.since = options_.clock->now(),
                .old_primary = slots_.record(old_primary),
                .member = slots_.shared(old_primary)};
}

void GroupControl::update() {
  const GroupRecord& record = key_.record();
  const bool lost = key_.claim().lost();
  GroupRoles next = roles();
  if (record.epoch != epoch_) {
    // A primary that is removed while promoting was never read: rule 22.
    if (epoch_ != 0 && record.promoting && !next.promoting) begin_promotion();
    if (!record.promoting) promotion_ = {};
    MemberSet missed = spoiled_ ? next.in_sync.with(next.syncing) : MemberSet{};
    next = slots_.roles_of(record);
    if (abandoned_ && !spoiled_) {
      spoiled_ = true;  // no rebuild goes on with it
      missed = {};
    }
    if (next.syncing.empty())
      spoiled_ = false;
    else if (spoiled_)
      next.syncing = next.syncing.both(missed);
    const MemberSet members = next.in_sync.with(next.syncing);
    failed_ = failed_.both(members);
    unsettled_.fetch_and(members.bits(), std::memory_order_acq_rel);
    epoch_ = record.epoch;
    headers_ = false;
    changes_.fetch_add(1, std::memory_order_acq_rel);
    options_.metrics->configuration_changed();
  }
  if (!key_.frozen()) abandoned_ = false;
  next.may_post = headers_ && !lost;
  next.may_acknowledge = next.may_post && !next.promoting && !key_.frozen();
  roles_.store(next, std::memory_order_release);
  const bool hold = !lost && (next.promoting || key_.frozen());
  if (hold != holding_) {
    holding_ = hold;
    if (hold)
      gate_.close();
    else
      gate_.open();
  }
  changed_.notify_all();
}

/// One transaction. It confirms the configuration that it makes.
Status GroupControl::change(const Result<GroupRecord>& next) {
  if (!next) return next.error();
  const auto sent = options_.clock->now();
  const Status done = key_.commit(*next);
  update();
  if (done) confirmed_at_.store(sent.count(), std::memory_order_release);
  return done;
}

/// The lost transaction may be one that has removed members.
Status GroupControl::thaw() {
  const GroupRoles before = roles();
  const MemberSet failed = failed_;
  const Status done = key_.thaw();
  update();
  const GroupRoles now = roles();
  failed.both(before.in_sync.without(now.in_sync)).for_each([&](std::size_t slot) {
    mutex_.assert_held();
    note_removal(slot, failures_.at(slot).error(), slot == before.primary && !before.promoting);
  });
  return done;
}

void GroupControl::note_removal(std::size_t slot, const Error& cause, bool was_primary) {
  note(VolumeEventKind::kMemberRemoved, slots_.record(slot).server, cause);
  // Rule 21: the old primary's server has other memory, so there is nothing to read.
  if (was_primary && cause.reason() == Reason::kNewMemory) promotion_.readers_gone = true;
}

void GroupControl::spoil(std::size_t slot) {
  GroupRoles next = roles();
  spoiled_ = true;
  next.syncing = next.syncing.without(MemberSet::of(slot));
  roles_.store(next, std::memory_order_release);
}

void GroupControl::fail(std::size_t slot, const Error& error) {
  failed_ = failed_.with(MemberSet::of(slot));
  failures_.at(slot) = error;
}

Status GroupControl::settle_one(std::size_t slot, Time until) {
  const auto left = std::max(std::chrono::nanoseconds{until - Time::clock::now()}, kDeadlineFloor);
  const Status settled = slots_.at(slot).settled(std::min(left, options_.settle_limit));
  if (settled)
    unsettled_.fetch_and(static_cast<std::uint16_t>(~MemberSet::of(slot).bits()),
                         std::memory_order_acq_rel);
  return settled;
}

Status GroupControl::members_failed(MemberSet failed, const MemberSlots::Outcomes& outcomes,
                                    Time until) {
  Status local;
  Status done;
  {
    MutexLock lock{mutex_};
    // All of them before the configuration changes: if none is left, none is removed.
    failed.for_each([&](std::size_t slot) {
      mutex_.assert_held();
      const Error& error = outcomes.at(slot).error();
      if (is_local(error))
        local = error;
      else
        note_failure(slot, error, until);
    });
    if (!failed_.empty()) done = converge_locked(lock, until);
  }
  report();
  return local ? done : local;
}

Status GroupControl::member_failed(std::size_t slot, const Error& error, Time until) {
  MemberSlots::Outcomes outcomes;
  outcomes.at(slot) = error;
  return members_failed(MemberSet::of(slot), outcomes, until);
}

void GroupControl::note_failure(std::size_t slot, const Error& error, Time until) {
  const GroupRoles now = roles();
  if (now.syncing.has(slot)) return spoil(slot);  // rule 15
  if (!now.in_sync.has(slot)) return;
  if (error.code() == Code::kIndeterminate) {
    unsettled_.fetch_or(MemberSet::of(slot).bits(), std::memory_order_acq_rel);
    if (failed_.has(slot)) return;  // another operation has asked it already
    if (settle_one(slot, until)) return;
  }
  fail(slot, error);
}

Status GroupControl::settle(MemberSet members, Time until) {
  Status done;
  {
    MutexLock lock{mutex_};
    const GroupRoles now = roles();
    members.both(unsettled()).for_each([&](std::size_t slot) {
      mutex_.assert_held();
      const Status settled = settle_one(slot, until);
      if (settled) return;
      if (now.in_sync.has(slot))
        fail(slot, settled.error());
      else
        spoil(slot);
    });
    done = converge_locked(lock, until);
  }
  report();
  return done;
}

Status GroupControl::converge(Time until) {
  Status done;
  {
    MutexLock lock{mutex_};
    done = converge_locked(lock, until);
  }
  report();
  return done;
}

Status GroupControl::step() {
  if (key_.frozen()) return thaw();
  if (const MemberSet fenced = fenced_members(); !fenced.empty()) return open_again(fenced.first());
  if (!failed_.empty()) return remove_failed();
  return write_headers();
}

void GroupControl::take_steps() {
  constexpr int kSteps = 4;  // a freeze, a removal, headers, and one of them again
  if (key_.claim().lost()) return update();
  for (int i = 0; i < kSteps && !converging_ && !converged(); ++i)
    if (!step()) return;
}

Status GroupControl::converge_locked(MutexLock& lock, Time until) {
  const bool turn = changed_.wait_until(lock, until, [&] {
    mutex_.assert_held();
    return !converging_ || converged() || key_.claim().lost();
  });
  if (!turn) return too_late("its configuration changes");
  // The thread that is in it ends by itself.
  if (converging_) return key_.claim().lost() ? Status{key_.claim().lost_error()} : ok_status();
  converging_ = true;
  const auto leave = [&] {
    mutex_.assert_held();
    converging_ = false;
    changed_.notify_all();
  };
  try {
    const Status done = converge_alone(lock, until);
    leave();
    return done;
  } catch (...) {  // no memory for a record
    leave();
    throw;
  }
}

Status GroupControl::converge_alone(MutexLock& lock, Time until) {
  constexpr std::chrono::milliseconds kPause{10};
  Status last = too_late("its configuration changes");
  while (true) {
    if (key_.claim().lost()) {
      update();
      return key_.claim().lost_error();
    }
    if (converged()) return {};
    const Time now = Time::clock::now();
    if (now >= until) return last;
    const bool asks_store = key_.frozen() || !failed_.empty();
    const Status done = step();
    if (done) continue;
    // The last member in sync; or headers, which are written to members only.
    if (!asks_store || (!key_.frozen() && failed_.empty())) return done;
    // The store does not answer, or has refused: nothing in this group can go on without it. Other
    // threads have the mutex meanwhile.
    last = done;
    static_cast<void>(changed_.wait_until(lock, Time::clock::now() + kPause));
  }
}

Status GroupControl::change_and_converge(const Result<GroupRecord>& next, MutexLock& lock,
                                         Time until) {
  Status done = change(next);
  if (done || key_.frozen()) done = converge_locked(lock, until);
  if (!done && key_.frozen() && !key_.claim().lost())
    return Error{Code::kIndeterminate, "transaction on a group"}.with_subject(
        done.error().subject());
  return done;
}

MemberSet GroupControl::fenced_members() const {
  MemberSet fenced;
  failed_.both(roles().in_sync).for_each([&](std::size_t slot) {
    mutex_.assert_held();
    if (failures_.at(slot).error().reason() == Reason::kFenced)
      fenced = fenced.with(MemberSet::of(slot));
  });
  return fenced;
}

/// A claimant that comes late to its fences, after another one has claimed the volume, ends the
/// grants of that one, and gets nothing: its adoption is refused. By rule 4 the writer may open the
/// member again. The member has all that was acknowledged, and what was refused is repeated.
Status GroupControl::open_again(std::size_t slot) {
  const auto still_failed = [&](const Error& error) -> Status {
    mutex_.assert_held();
    if (is_local(error)) return error;
    failures_.at(slot) = error;
    return {};
  };
  // The failure may be that of an operation which began before the member was opened again.
  MemberHeader::Bytes header{};
  const Status read = slots_.at(slot).read(0, Target{header});
  if (!read && read.error().reason() != Reason::kFenced) return still_failed(read.error());
  // One that does not answer at once is not asked, as at the end of a promotion.
  if (!read && !slots_.at(slot).connected())
    return still_failed(Error{Code::kConnectionLost, "member of a group"});
  if (!read) {
    // A newer writer's fence looks the same: then the claim is lost, and nothing is fenced.
    if (const Status ours = key_.confirm(); !ours) return ours;
    auto fenced = options_.metrics->fenced(opener_.fence(slots_.record(slot)));
    if (!fenced) return still_failed(fenced.error());
    const auto sent = options_.clock->now();
    if (const Status confirmed = key_.confirm(); !confirmed) return confirmed;
    confirmed_at_.store(sent.count(), std::memory_order_release);
    if (!slots_.replace(slot, std::move(*fenced)))
      return still_failed(Error{Code::kLimitExceeded, "grant that was fenced again and again"});
    // The fence has ended what was in flight.
    unsettled_.fetch_and(static_cast<std::uint16_t>(~MemberSet::of(slot).bits()),
                         std::memory_order_acq_rel);
  }
  failed_ = failed_.without(MemberSet::of(slot));
  return {};
}

/// Removes one failed member. The last one in sync stays: its failure is that of the operation.
Status GroupControl::remove_failed() {
  const GroupRoles now = roles();
  if (now.in_sync.without(failed_).empty()) {
    const MemberSet all = std::exchange(failed_, {});
    // What takes a right away may be a newer writer's doing: then the claim is lost.
    all.for_each([&](std::size_t slot) {
      mutex_.assert_held();
      if (failures_.at(slot).error().code() == Code::kAccessRefused)
        static_cast<void>(key_.confirm());
    });
    if (!key_.claim().lost()) return failures_.at(all.first());
    update();
    return key_.claim().lost_error();
  }
  const std::size_t slot = failed_.first();
  const Error cause = failures_.at(slot).error();
  failed_ = failed_.without(MemberSet::of(slot));
  if (!now.in_sync.has(slot)) return {};
  const bool was_primary = slot == now.primary && !now.promoting;
  const Status done = change(without_member(key_.record(), slots_.record(slot).region));
  if (!done) {
    failed_ = failed_.with(MemberSet::of(slot));
    return done;
  }
  note_removal(slot, cause, was_primary);
  return done;
}

/// Rule 27. Ok also if a member has failed, which failed_ says then.
Status GroupControl::write_headers() {
  const GroupRoles now = roles();
  const GroupRecord& record = key_.record();
  std::array<MemberHeader::Bytes, kMemberSlots> headers{};
  const MemberSet all = now.in_sync.with(now.syncing);
  if (const MemberSet doubtful = all.both(unsettled()); !doubtful.empty()) {
    doubtful.for_each([&](std::size_t slot) {
      mutex_.assert_held();
      const Status settled = settle_one(slot, Time::clock::now() + options_.settle_limit);
      if (settled) return;
      if (now.in_sync.has(slot))
        fail(slot, settled.error());
      else
        spoil(slot);
    });
    return {};
  }
  all.for_each([&](std::size_t slot) {
    mutex_.assert_held();
    MemberHeader header;
    header.generation = record.generation;
    header.volume_id = key_.claim().volume().id;
    header.group = record.index;
    header.writer_epoch = record.adopted;
    header.epoch = record.epoch;
    header.role = slot == now.primary     ? MemberRole::kPrimary
                  : now.in_sync.has(slot) ? MemberRole::kInSync
                                          : MemberRole::kSyncing;
    header.promoting = record.promoting;
    headers.at(slot) = header.encode();
  });
  MemberSlots::Outcomes outcomes;
  slots_.write_all(
      all,
      [&](std::size_t slot) {
        return MemberWrite{.offset_bytes = 0, .from = std::span<const std::byte>{headers.at(slot)}};
      },
      outcomes);
  bool good = true;
  Status local;
  all.for_each([&](std::size_t slot) {
    mutex_.assert_held();
    const Status& written = outcomes.at(slot);
    if (written) return;
    good = false;
    if (is_local(written.error()))
      local = written;
    else if (now.syncing.has(slot))
      spoil(slot);
    else if (written.error().code() == Code::kIndeterminate)
      unsettled_.fetch_or(MemberSet::of(slot).bits(), std::memory_order_acq_rel);
    else
      fail(slot, written.error());
  });
  if (good) {
    headers_ = true;
    update();
  }
  return local;
}

template <typename Ready>
Status GroupControl::await(Time until, const Ready& ready) {
  MutexLock lock{mutex_};
  const bool done = changed_.wait_until(lock, until, [&] {
    mutex_.assert_held();
    return key_.claim().lost() || ready(roles());
  });
  if (key_.claim().lost()) return key_.claim().lost_error();
  if (!done) return too_late("its primary changes, or its key is frozen");
  return {};
}

Status GroupControl::await_acknowledgement(Time until) {
  if (roles().may_acknowledge) return {};
  return await(until, [](const GroupRoles& now) { return now.may_acknowledge; });
}

Status GroupControl::await_readable(Time until) {
  if (!roles().promoting) return {};
  return await(until, [](const GroupRoles& now) { return !now.promoting; });
}

}  // namespace remora::volume::detail
