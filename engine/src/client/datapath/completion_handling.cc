/// How operations of a QueuedLaneDriver end: completions to runs, runs to their owners' sinks; what
/// a failure, a deadline and the end of the lane leave.

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/spin_pause.h"
#include "client/datapath/queued_lane_driver.h"

namespace remora::detail {

using transport::LaneCompletion;
using transport::Opcode;

namespace {
/// How long a broken lane may take to flush before it is closed under the requests that are left.
/// Lanes that are broken off together flush together.
constexpr std::chrono::milliseconds kFlushTimeout{200};
}  // namespace

/// From here on the lane has its time to flush, whichever thread waits for that.
void QueuedLaneDriver::move_to_error() noexcept {
  Clock::rep none = 0;
  flush_by_.compare_exchange_strong(none,
                                    (Clock::now() + kFlushTimeout).time_since_epoch().count());
  lane_->move_to_error();
}

/// Gives operations that have ended to their owner.
[[gnu::always_inline]] inline void QueuedLaneDriver::push(CompletionSink& sink,
                                                          OperationRecord& first,
                                                          std::size_t count) noexcept {
  if (EventNotifier* const watcher = sink.watcher(); watcher != watcher_ && watcher != nullptr)
      [[unlikely]] {
    tell_watchers();
    watcher_ = watcher;
  }
  sink.push(first, count);
}

void QueuedLaneDriver::finish(OperationRecord& operation, EndTally& tally) noexcept {
  if (operation.whole)
    tally.add(operation);
  else
    finish_split(operation, tally);
  push(*operation.sink, operation, 1);
}

/// One request, that is no run, is no longer with the lane.
void QueuedLaneDriver::settle(Posted& posted, EndTally& tally) noexcept {
  OperationRecord& operation = *posted.operation;
  if (posted.joined) return settle_joined(posted, tally);
  if (operation.whole) return finish(operation, tally);
  settle_part(posted, operation, tally);
}

void QueuedLaneDriver::settle_joined(Posted& posted, EndTally& tally) noexcept {
  posted.joined = false;
  for (OperationRecord* at = posted.operation; at != nullptr;) {
    OperationRecord& operation = *std::exchange(at, at->next);
    finish(operation, tally);
  }
}

void QueuedLaneDriver::settle_part(Posted& posted, OperationRecord& operation,
                                   EndTally& tally) noexcept {
  if (posted.bounce_slot != SlotStore::kNone) options_.bounce->give_back(posted.bounce_slot);
  posted = {};
  if (--operation.requests_in_flight != 0) return;
  const bool planned = all_planned(operation) || !operation.outcome.ok;
  // An operation that is still first in the backlog is finished by pump() or fail_backlog().
  if (planned && backlog_.first != &operation) finish(operation, tally);
}

/// The oldest request with the lane, and as many of its run as `max_count` says, are done.
[[gnu::always_inline]] inline void QueuedLaneDriver::retire(std::uint64_t max_count,
                                                            EndTally& tally) noexcept {
  const std::uint64_t sequence = retired_sequence_;
  Posted& posted = posted_at(sequence);
  if (posted.run_count == 0) [[unlikely]]
    return retire_split(posted, sequence, tally);
  if (posted.run_count > max_count) [[unlikely]]
    cut_run(sequence, max_count);
  retired_sequence_ = sequence + posted.run_count;
  OperationRecord& first = *posted.operation;
  tally.add_run(first, posted.run_count, posted.run_bytes);
  push(*first.sink, first, posted.run_count);
}

void QueuedLaneDriver::retire_split(Posted& posted, std::uint64_t sequence,
                                    EndTally& tally) noexcept {
  OperationRecord& operation = *posted.operation;
  if (is_atomic(operation.request.opcode))
    operation.old_value = atomic_result(sequence);
  else if (!operation.whole && posted.user != nullptr)
    std::memcpy(posted.user, options_.bounce->slot(posted.bounce_slot).data(), posted.length_bytes);
  retired_sequence_ = sequence + 1;
  settle(posted, tally);
}

/// Makes the run at `sequence` two, the first of them with `count` requests.
void QueuedLaneDriver::cut_run(std::uint64_t sequence, std::uint64_t count) noexcept {
  Posted& front = posted_at(sequence);
  Posted rest{.operation = front.operation,
              .run_count = front.run_count - static_cast<std::uint32_t>(count),
              .run_bytes = front.run_bytes};
  for (std::uint64_t i = 0; i < count; ++i) {
    rest.run_bytes -= rest.operation->length_bytes;
    rest.operation = rest.operation->next;
  }
  front.run_count = static_cast<std::uint32_t>(count);
  front.run_bytes -= rest.run_bytes;
  posted_at(sequence + count) = rest;
}

/// Takes back a request that the lane did not take.
void QueuedLaneDriver::drop(std::uint64_t sequence, EndTally& tally) noexcept {
  Posted& posted = posted_at(sequence);
  if (posted.run_count > 1) cut_run(sequence, 1);
  if (options_.revivable && posted.operation->whole) {  // it never left
    OperationRecord* at = posted.operation;
    const bool joined = std::exchange(posted.joined, false);
    while (at != nullptr) wait_in_backlog(*std::exchange(at, joined ? at->next : nullptr));
    return;
  }
  for_each(posted, [&](OperationRecord& operation) {
    if (operation.outcome.ok) operation.outcome = lost(operation, false, tally.now());
  });
  settle(posted, tally);
}

void QueuedLaneDriver::wait_in_backlog(OperationRecord& operation) noexcept {
  operation.follows = false;
  operation.next = nullptr;
  backlog_expires_ = std::min(backlog_expires_, operation.deadline);
  backlog_.append(operation);
}

[[gnu::always_inline]] inline void QueuedLaneDriver::retire_through(
    const LaneCompletion& completion, EndTally& tally) noexcept {
  // Requests complete in order and one that fails always says so itself: those passed over are ok.
  const bool ok = completion.status == CompletionStatus::kSuccess;
  const std::uint64_t ok_end = completion.sequence + (ok ? 1 : 0);
  while (retired_sequence_ < ok_end) retire(ok_end - retired_sequence_, tally);
  if (!ok && retired_sequence_ == completion.sequence) [[unlikely]]
    retire_failed(completion.sequence, completion.status, completion.vendor_error, tally);
}

/// True when anything completed.
bool QueuedLaneDriver::poll_completions() noexcept {
  if (retired_sequence_ == next_sequence_) return false;
  std::array<LaneCompletion, 64> found;  // NOLINT(cppcoreguidelines-pro-type-member-init): 1 KiB
  const std::size_t count = lane_->poll(found);
  if (count == 0) return false;
  // What is usual: all that is posted is one run, and its end is told of.
  const Posted& oldest = posted_at(retired_sequence_);
  if (count == 1 && found[0].status == CompletionStatus::kSuccess &&
      found[0].sequence + 1 == next_sequence_ &&
      retired_sequence_ + oldest.run_count == next_sequence_) [[likely]] {
    OperationRecord& first = *oldest.operation;
    const metrics::Recorder recorder = cells_.recorder();
    metrics_.ended(recorder, first.request.opcode, latency_now() - first.submitted,
                   oldest.run_count, oldest.run_bytes);
    metrics_.polled(recorder, 1, 0);
    retired_sequence_ = next_sequence_;
    push(*first.sink, first, oldest.run_count);
    sleepers_.wake();
    return true;
  }
  take_completions(found, count);
  return true;
}

/// Ends what the first `count` of `found` tell of, and what there is to be polled behind them.
void QueuedLaneDriver::take_completions(std::span<LaneCompletion> found,
                                        std::size_t count) noexcept {
  std::size_t total = 0;
  bool failed = false;
  {
    EndTally tally{metrics_, cells_.recorder()};
    while (true) {
      for (const LaneCompletion& each : found.first(count)) {
        retire_through(each, tally);
        failed |= each.status != CompletionStatus::kSuccess;
      }
      total += count;
      if (count < found.size() || retired_sequence_ == next_sequence_) break;
      count = lane_->poll(found);
      if (count == 0) break;
    }
    metrics_.polled(cells_.recorder(), total, next_sequence_ - retired_sequence_);
  }
  if (failed) [[unlikely]]
    break_lane(Reason::kLaneBroken);
  sleepers_.wake();
}

void QueuedLaneDriver::retire_failed(std::uint64_t sequence, CompletionStatus status,
                                     std::uint32_t vendor_error, EndTally& tally) noexcept {
  breaking_.store(true, std::memory_order_release);
  Posted& posted = posted_at(sequence);
  if (posted.run_count > 1) cut_run(sequence, 1);
  retired_sequence_ = sequence + 1;
  if (go_again(posted, status, vendor_error, tally)) return;
  if (refused_by_peer(status) || local_fault(status)) blame(LaneFault::kRefused);
  if (set_aside(posted, status, vendor_error)) return;
  for_each(posted, [&](OperationRecord& operation) {
    if (!operation.outcome.ok) return;
    if (refused_by_peer(status))
      operation.outcome = Outcome::failure(Code::kAccessRefused);
    else if (local_fault(status))
      operation.outcome = Outcome::failure(Code::kProvider);
    else
      operation.outcome = lost(operation, true, tally.now());
    operation.outcome.status = status;
    operation.outcome.detail = vendor_error;
  });
  settle(posted, tally);
}

/// Whole reads that a broken lane has taken with it wait for the next one, also those that were one
/// request; what was joined with them and has run out of time ends. False: it is nothing of that.
bool QueuedLaneDriver::go_again(Posted& posted, CompletionStatus status, std::uint32_t vendor_error,
                                EndTally& tally) noexcept {
  // What the queue pair itself could not do, it may be unable to do on the next lane too.
  const bool again = options_.revivable && posted.operation->whole &&
                     posted.operation->request.opcode == Opcode::kRead &&
                     !refused_by_peer(status) && !local_fault(status) &&
                     status != CompletionStatus::kLocalQpOperationError;
  if (!again) return false;
  OperationRecord* at = posted.operation;
  const bool joined = posted.joined;
  const Clock::time_point now = Clock::now();
  posted = {};
  while (at != nullptr) {
    OperationRecord& operation = *std::exchange(at, joined ? at->next : nullptr);
    if (now < operation.deadline) {
      metrics_.reposted(cells_.recorder());
      wait_in_backlog(operation);
      continue;
    }
    operation.outcome = lost(operation, true, now);
    operation.outcome.status = status;
    operation.outcome.detail = vendor_error;
    finish(operation, tally);
  }
  return true;
}

/// Keeps what the server has refused until the lane has been let go: to ask why takes a request,
/// and locks under which lanes are taken. False: there is something set aside, or nobody to ask.
bool QueuedLaneDriver::set_aside(Posted& posted, CompletionStatus status,
                                 std::uint32_t vendor_error) noexcept {
  if (!refused_by_peer(status) || !options_.why_refused || refused_.first != nullptr ||
      !posted.operation->outcome.ok)
    return false;
  for_each(posted, [&](OperationRecord& operation) {
    operation.outcome = Outcome::failure(Code::kAccessRefused);
    operation.outcome.status = status;
    operation.outcome.detail = vendor_error;
  });
  refused_ = {posted.operation, posted.joined};
  // Of one that is not whole the request counts as in flight until then, so that nothing ends it.
  if (!posted.operation->whole && posted.bounce_slot != SlotStore::kNone)
    options_.bounce->give_back(posted.bounce_slot);
  posted = {};
  return true;
}

/// Without the lane. Blocks for as long as it takes to ask.
void QueuedLaneDriver::end_refused(const Refused& refused) noexcept {
  const Reason why = options_.why_refused(*refused.first);
  mutex_.lock();
  {
    EndTally tally{metrics_, cells_.recorder()};
    for (OperationRecord* at = refused.first; at != nullptr;) {
      OperationRecord& operation = *std::exchange(at, refused.joined ? at->next : nullptr);
      if (why == Reason::kPeerGone)
        operation.outcome.code = operation.request.opcode == Opcode::kRead ? Code::kConnectionLost
                                                                           : Code::kIndeterminate;
      operation.outcome.reason = why;
      if (operation.whole || --operation.requests_in_flight == 0) finish(operation, tally);
    }
    // Its neighbours that wait would only be refused in turn, by the lane that follows.
    if (broken() && !ended_) refuse_waiting(tally);
  }
  sleepers_.wake();
  tell_watchers();
  mutex_.unlock();
}

/// Of a lane without anything posted: ends what waits and is of grants that were taken back.
void QueuedLaneDriver::refuse_waiting(EndTally& tally) noexcept {
  if (backlog_.empty() || !options_.revoked) return;
  Reason why = Reason::kNone;
  backlog_.extract(
      [&](const OperationRecord& operation) {
        if (!operation.whole && operation.requests_in_flight != 0) return false;
        why = options_.revoked(operation);
        return why != Reason::kNone;
      },
      [&](OperationRecord& operation) {
        operation.outcome = Outcome::failure(Code::kAccessRefused, why);
        finish(operation, tally);
      });
}

/// As it is known here: the session may know more of what it cannot explain (kLaneBroken).
Reason QueuedLaneDriver::why_broken() const noexcept {
  if (broken_reason_ != Reason::kNone && broken_reason_ != Reason::kLaneBroken)
    return broken_reason_;
  return fault() == LaneFault::kNone ? Reason::kLaneBroken : Reason::kLaneVictim;
}

/// How an operation ends that was with a lane that broke. `posted`: a request of it was.
Outcome QueuedLaneDriver::lost(const OperationRecord& operation, bool posted,
                               Clock::time_point now) const noexcept {
  const bool expired = now >= operation.deadline;
  // A part's whole is counted by the thread that cut it, once.
  if (fault() != LaneFault::kNone && !victims_ended_ && !expired &&
      (operation.whole || !operation.part))
    metrics_.victim(cells_.recorder(), fault());
  if (!operation.whole) posted = operation.any_posted;
  const bool uncertain = posted && operation.request.opcode != Opcode::kRead;
  if (uncertain)
    return Outcome::failure(Code::kIndeterminate, expired ? Reason::kExpired : why_broken());
  if (!expired) return session_gone(why_broken());
  // What has waited for another lane all its time: why there was none says more.
  const bool waited = !posted && broken();
  return Outcome::failure(Code::kTimedOut, waited ? why_broken() : Reason::kExpired);
}

/// Ends what has run out of time: unposted operations by themselves, posted ones with their lane.
void QueuedLaneDriver::expire(Clock::time_point now) noexcept {
  bool any = false;
  // Those of a run have one deadline.
  for (std::uint64_t at = retired_sequence_; at != next_sequence_ && !any;
       at += posted_at(at).request_count())
    for_each(posted_at(at),
             [&](const OperationRecord& each) { any = any || each.deadline <= now; });
  if (any) {
    blame(LaneFault::kDeadline);
    return break_lane(Reason::kLaneBroken);
  }
  expire_backlog(now);
}

/// Ends unposted operations that have run out of time.
void QueuedLaneDriver::expire_backlog(Clock::time_point now) noexcept {
  EndTally tally{metrics_, cells_.recorder()};
  backlog_expires_ = Deadline::max();
  backlog_.extract(
      [&](const OperationRecord& operation) {
        const bool over =
            operation.deadline <= now && (operation.whole || operation.requests_in_flight == 0);
        if (!over) backlog_expires_ = std::min(backlog_expires_, operation.deadline);
        return over;
      },
      [&](OperationRecord& operation) {
        // Posted in part and all of that done: a write's effect is there in part.
        operation.outcome = lost(operation, false, now);
        finish(operation, tally);
      });
}

void QueuedLaneDriver::break_lane(Reason reason) noexcept {
  if (broken()) return;
  ended_ = !options_.revivable;
  broken_reason_ = reason;
  broken_.store(true, std::memory_order_release);
  if (reason != Reason::kNone) metrics_.lane_broken();
  move_to_error();
  const Deadline flushed_by{Clock::duration{flush_by_.load()}};
  std::array<LaneCompletion, 64> found;
  while (retired_sequence_ != next_sequence_) {
    const std::size_t count = lane_->poll(found);
    if (count == 0) {
      // What is there is taken, however late this looks.
      if (Clock::now() >= flushed_by) break;
      relax();
      continue;
    }
    EndTally tally{metrics_, cells_.recorder()};
    for (std::size_t i = 0; i < count; ++i) retire_through(found[i], tally);
  }
  if (events_) events_->remove(lane_->event_fd());
  // From here on nothing touches a buffer, so what has not completed may end. A device can be slow
  // to give a lane back; where all has completed, no caller waits for it.
  if (retired_sequence_ == next_sequence_)
    lane_->close_later();
  else
    lane_->close();
  EndTally tally{metrics_, cells_.recorder()};
  while (retired_sequence_ != next_sequence_)
    retire_failed(retired_sequence_, CompletionStatus::kFlushed, 0, tally);
  if (ended_)
    fail_backlog(tally);
  else
    finish_begun(tally);
  sleepers_.wake();
}

/// What waits for another lane is whole, or nothing of it was posted.
void QueuedLaneDriver::finish_begun(EndTally& tally) noexcept {
  backlog_.extract(
      [](const OperationRecord& operation) {
        return !operation.whole && (operation.any_posted || !operation.outcome.ok);
      },
      [&](OperationRecord& operation) {
        if (&operation == refused_.first) return;  // ended when it is known why
        if (operation.outcome.ok) operation.outcome = lost(operation, false, tally.now());
        finish(operation, tally);
      });
}

/// Of a lane that has broken before: no other follows, so what waits for one ends.
void QueuedLaneDriver::end_for_good(Reason reason) noexcept {
  if (std::exchange(ended_, true)) return;
  broken_reason_ = reason;
  victims_ended_ = true;
  EndTally tally{metrics_, cells_.recorder()};
  fail_backlog(tally);
  sleepers_.wake();
}

void QueuedLaneDriver::fail_backlog(EndTally& tally) noexcept {
  while (!backlog_.empty()) {
    OperationRecord& operation = backlog_.take_first();
    if (&operation == refused_.first) continue;  // ended when it is known why
    if (operation.outcome.ok) operation.outcome = lost(operation, false, tally.now());
    finish(operation, tally);
  }
}

}  // namespace remora::detail
