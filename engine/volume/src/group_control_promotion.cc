/// GroupControl: confirmations, the end of a promotion, members that come in.

#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "group_changes.h"
#include "group_control.h"
#include "mirror_log.h"

namespace remora::volume::detail {

using remora::detail::MutexLock;

bool GroupControl::is_confirmed() const noexcept {
  const std::int64_t sent = confirmed_at_.load(std::memory_order_acquire);
  const std::chrono::nanoseconds age = options_.clock->now() - std::chrono::nanoseconds{sent};
  return sent != 0 && age < options_.times.confirmed_for;
}

Status GroupControl::confirm(Time until) {
  Status done;
  {
    const MutexLock lock{mutex_};
    if (is_confirmed()) return {};
    if (Time::clock::now() >= until) return too_late("its store does not answer");
    const auto sent = options_.clock->now();
    done = key_.confirm();
    options_.metrics->confirmation(done.ok(), options_.clock->now() - sent);
    if (done) confirmed_at_.store(sent.count(), std::memory_order_release);
    if (key_.claim().lost()) update();
  }
  return done;
}

void GroupControl::refresh() {
  const auto sent = std::chrono::nanoseconds{confirmed_at_.load(std::memory_order_acquire)};
  if (options_.clock->now() - sent < options_.times.refreshed_after()) return;
  if (!read_since_.load(std::memory_order_relaxed)) return;
  if (!mutex_.try_lock()) return;
  const MutexLock lock{mutex_, std::adopt_lock};
  read_since_.store(false, std::memory_order_relaxed);
  const auto now = options_.clock->now();
  const Status done = key_.confirm();
  options_.metrics->confirmation(done.ok(), options_.clock->now() - now);
  if (done) confirmed_at_.store(now.count(), std::memory_order_release);
  if (key_.claim().lost()) update();
}

bool GroupControl::advance() {
  std::vector<VolumeEvent> events;
  bool done = false;
  {
    if (!mutex_.try_lock()) return false;
    const MutexLock lock{mutex_, std::adopt_lock};
    take_steps();
    done = !converging_ && converged() && !key_.claim().lost();
    events.swap(events_);
  }
  tell(events);
  return done;
}

void GroupControl::maintain(const std::function<bool()>& nothing_unresolved) {
  std::vector<VolumeEvent> events;
  {
    if (!mutex_.try_lock()) return;
    const MutexLock lock{mutex_, std::adopt_lock};
    if (spoiled_ && !key_.frozen() && !key_.claim().lost())
      for (const Member& member : key_.record().members)
        if (member.state == MemberState::kSyncing) {
          const std::string server = member.server;
          // The repair that has built it tells of it.
          if (change(without_member(key_.record(), member.region)))
            count_removed(server, Error{Code::kBusy, "member that was built"}.with_subject(
                                      "it has missed a write"));
          break;
        }
    if (key_.record().promoting && !key_.frozen() && !key_.claim().lost())
      try_to_end_promotion(nothing_unresolved);
    events.swap(events_);
  }
  tell(events);
}

/// Rule 21.
bool GroupControl::readers_are_gone() {
  if (promotion_.readers_gone) return true;
  if (options_.clock->now() - promotion_.since >= options_.times.readers_gone_after()) return true;
  // A member that does not answer at once is not asked: that could take longer than the time above.
  if (promotion_.member == nullptr || !promotion_.member->connected()) return false;
  const auto fenced = options_.metrics->fenced(opener_.fence(*promotion_.old_primary));
  promotion_.member.reset();
  promotion_.readers_gone = fenced || fenced.error().reason() == Reason::kNewMemory;
  return promotion_.readers_gone;
}

void GroupControl::try_to_end_promotion(const std::function<bool()>& nothing_unresolved) {
  // In this order: a write marks its zone as unresolved before it leaves the gate.
  if (!headers_ || !gate_.is_quiet() || !nothing_unresolved() || !readers_are_gone()) return;
  const bool ended = change(with_promotion_ended(key_.record())).ok();
  if (ended) take_steps();
}

Status GroupControl::add_syncing(const Member& member, Time until) {
  auto opened = opener_.open(member);
  if (!opened) return opened.error();
  gate_.close();
  read_gate_.close();
  Status done = too_late("operations in flight");
  if (gate_.wait_quiet(until) && read_gate_.wait_quiet(until)) {
    MutexLock lock{mutex_};
    slots_.forget_replaced();
    done = converge_locked(lock, until);
    const auto next = with_syncing(key_.record(), member);
    if (done && !next) done = next.error();
    if (done) {
      slots_.put(slots_.free_slot(key_.record()), member, std::move(*opened));
      // The transaction comes after the grant, and so confirms it (rule 4).
      done = change_and_converge(next, lock, until);
      abandoned_ = !done && key_.frozen();
      if (done && roles().syncing.empty())
        done = Error{Code::kBusy, "member that is built"}.with_subject(member.region);
    }
  }
  read_gate_.open();
  gate_.open();
  report();
  return done;
}

Status GroupControl::make_in_sync(Time until) {
  gate_.close();
  read_gate_.close();
  Status done = too_late("operations in flight");
  if (gate_.wait_quiet(until) && read_gate_.wait_quiet(until)) {
    MutexLock lock{mutex_};
    slots_.forget_replaced();
    done = converge_locked(lock, until);
    const MemberSet built = roles().syncing;
    if (done && built.empty())
      done = Error{Code::kBusy, "member that is built"}.with_subject("it has missed a write");
    if (done) {
      done = change_and_converge(with_in_sync(key_.record()), lock, until);
      if (done && roles().in_sync.both(built).empty())
        done = Error{Code::kBusy, "member that is built"}.with_subject("it was removed");
      if (done)
        log_member_in_sync(key_.claim().volume().name, key_.record().index,
                           slots_.record(built.first()).server);
    }
  }
  read_gate_.open();
  gate_.open();
  report();
  return done;
}

Status GroupControl::remove_member(const std::string& region, Time until) {
  Status done;
  {
    MutexLock lock{mutex_};
    done = converge_locked(lock, until);
    const std::size_t before = key_.record().members.size();
    if (done) {
      done = change_and_converge(without_member(key_.record(), region), lock, until);
      if (done && key_.record().members.size() == before)
        done = Error{Code::kBusy, "member of a group"}.with_subject(region);
      if (done) options_.metrics->member_removed_on_request();
    }
  }
  report();
  return done;
}

}  // namespace remora::volume::detail
