/// How operations of a QueuedLaneDriver end: a completion retires requests, and the driver pushes
/// their operations to the sinks of their owners. Also failures and deadlines.
/// queued_lane_driver_broken_lane.cc has the end of the lane.

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include <remora/assert.h>

#include "base/spin_pause.h"
#include "client/datapath/queued_lane_driver.h"
#include "client/datapath/revocable_grant.h"

namespace remora::detail {

using transport::LaneCompletion;
using transport::Opcode;

namespace {
/// A read may fail so often because the device's address is missing; after that the request itself
/// is at fault.
constexpr std::uint32_t kMaxTriesOfSuspect = 3;
}  // namespace

/// Pushes operations that have ended to their sink, and notes the sink's notifier, which is
/// notified before the lane is released.
[[gnu::always_inline]] inline void QueuedLaneDriver::push(CompletionSink& sink,
                                                          OperationRecord& first,
                                                          std::size_t count) noexcept {
  if (EventNotifier* const notifier = sink.notifier(); notifier != notifier_ && notifier != nullptr)
      [[unlikely]] {
    tell_notifier();
    notifier_ = notifier;
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

/// The lane no longer has this request, which is not a run.
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
  REMORA_ASSERT(operation.requests_in_flight > 0, "a request of an operation ends once");
  if (--operation.requests_in_flight != 0) return;
  const bool planned = all_planned(operation) || !operation.outcome.ok;
  // post_backlog() or fail_backlog() finishes an operation that is still first in the backlog.
  if (planned && backlog_.first != &operation) finish(operation, tally);
}

/// The lane's oldest request is done, and with it the next requests of its run: `max_count`
/// requests at most.
[[gnu::always_inline]] inline void QueuedLaneDriver::retire(std::uint64_t max_count,
                                                            EndTally& tally) noexcept {
  const std::uint64_t sequence = retired_sequence_;
  Posted& posted = posted_at(sequence);
  if (posted.run_count == 0) [[unlikely]]
    return retire_split(posted, sequence, tally);
  if (posted.run_count > max_count) [[unlikely]]
    cut_run(sequence, max_count);
  REMORA_ASSERT_HOT(
      posted.operation != nullptr && posted.run_count <= next_sequence_ - retired_sequence_,
      "only requests that are posted are retired");
  retired_sequence_ = sequence + posted.run_count;
  OperationRecord& first = *posted.operation;
  tally.add_run(first, posted.run_count, posted.run_bytes);
  push(*first.sink, first, posted.run_count);
}

void QueuedLaneDriver::retire_split(Posted& posted, std::uint64_t sequence,
                                    EndTally& tally) noexcept {
  REMORA_ASSERT_HOT(posted.operation != nullptr && sequence < next_sequence_,
                    "only requests that are posted are retired");
  OperationRecord& operation = *posted.operation;
  if (is_atomic(operation.request.opcode))
    operation.old_value = atomic_result(sequence);
  else if (!operation.whole && posted.user != nullptr)
    std::memcpy(posted.user, options_.bounce->slot(posted.bounce_slot).data(), posted.length_bytes);
  retired_sequence_ = sequence + 1;
  settle(posted, tally);
}

/// Divides the run at `sequence`; the first part has `count` requests.
void QueuedLaneDriver::cut_run(std::uint64_t sequence, std::uint64_t count) noexcept {
  Posted& front = posted_at(sequence);
  REMORA_ASSERT(count > 0 && count < front.run_count, "a run is cut within");
  Posted rest{.operation = front.operation,
              .run_count = front.run_count - static_cast<std::uint32_t>(count),
              .ends_chain = std::exchange(front.ends_chain, false),
              .uniform = front.uniform,
              .run_bytes = front.run_bytes};
  for (std::uint64_t i = 0; i < count; ++i) {
    rest.run_bytes -= rest.operation->request.length_bytes;
    rest.operation = rest.operation->next;
  }
  if (rest.uniform) fill_like(*rest.operation, *front.operation);
  front.run_count = static_cast<std::uint32_t>(count);
  front.run_bytes -= rest.run_bytes;
  posted_at(sequence + count) = rest;
}

/// The lane did not take this request: its operations wait for the next lane, or end.
void QueuedLaneDriver::return_unposted(std::uint64_t sequence, EndTally& tally) noexcept {
  Posted& posted = posted_at(sequence);
  if (posted.run_count > 1) cut_run(sequence, 1);
  if (options_.revivable && posted.operation->whole) {  // the request was never sent
    OperationRecord* at = posted.operation;
    const bool joined = std::exchange(posted.joined, false);
    while (at != nullptr) wait_in_backlog(*std::exchange(at, joined ? at->next : nullptr));
    return;
  }
  for_each(posted, [&](OperationRecord& operation) {
    mutex_.assert_held();
    if (operation.outcome.ok)
      operation.outcome = outcome_on_broken_lane(operation, false, tally.now());
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
  if (completion.sequence >= next_sequence_) [[unlikely]]
    return distrust(completion);
  // Requests complete in order, and a request that fails always has a completion. So the requests
  // before this completion have succeeded.
  const bool ok = completion.status == CompletionStatus::kSuccess;
  const std::uint64_t ok_end = completion.sequence + (ok ? 1 : 0);
  const bool named = retired_sequence_ < completion.sequence;
  while (retired_sequence_ < ok_end) retire(ok_end - retired_sequence_, tally);
  if (!ok && retired_sequence_ == completion.sequence) [[unlikely]]
    retire_failed(completion.sequence, completion.status, completion.vendor_error, named, tally);
}

/// Returns whether anything completed.
bool QueuedLaneDriver::poll_completions() noexcept {
  if (retired_sequence_ == next_sequence_) return false;
  std::array<LaneCompletion, 64> found;  // NOLINT(cppcoreguidelines-pro-type-member-init): 1 KiB
  const std::size_t count = lane_->poll(found);
  if (count == 0) return false;
  // The usual case: all posted requests are one run, and its last request has completed.
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
    waiters_.wake();
    return true;
  }
  take_completions(found, count);
  return true;
}

/// Ends the operations of the first `count` completions in `found`, and of the completions that it
/// polls after that.
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
  waiters_.wake();
}

/// Ends the operations of a broken lane while its requests flush, until `until`.
void QueuedLaneDriver::take_flushed(Deadline until) noexcept {
  std::array<LaneCompletion, 64> found;
  while (retired_sequence_ != next_sequence_) {
    const std::size_t count = lane_->poll(found);
    if (count == 0) {
      // Takes completions that are there even after `until`.
      if (Clock::now() >= until) return;
      wait_for_device(relax);
      continue;
    }
    EndTally tally{metrics_, cells_.recorder()};
    for (std::size_t i = 0; i < count; ++i) retire_through(found[i], tally);
  }
}

/// Whether all requests from `sequence` to the next signaled one belong to one operation: then that
/// operation has failed.
bool QueuedLaneDriver::is_certain(std::uint64_t sequence) const noexcept {
  const OperationRecord* const operation = ring_[sequence & mask_].operation;
  for (std::uint64_t at = sequence; at != next_sequence_; ++at) {
    const Posted& each = ring_[at & mask_];
    if (each.operation != operation || each.run_count > 1) return false;
    if (each.ends_chain) return true;
  }
  return true;
}

/// Some devices (bnxt_re) report a failed request under the number of the oldest request that may
/// not be done. A signaled request that has completed is done. So the failed request is the
/// reported one or a later one, up to the next signaled one: a write or atomic that is reported may
/// have been carried out.
void QueuedLaneDriver::retire_failed(std::uint64_t sequence, CompletionStatus status,
                                     std::uint32_t vendor_error, bool named,
                                     EndTally& tally) noexcept {
  REMORA_ASSERT(sequence == retired_sequence_ && sequence < next_sequence_,
                "requests are retired in the order of their sequences");
  breaking_.store(true, std::memory_order_release);
  Posted& posted = posted_at(sequence);
  if (posted.run_count > 1) cut_run(sequence, 1);
  retired_sequence_ = sequence + 1;
  if (status == CompletionStatus::kRetryExceeded)
    unanswered_.store(true, std::memory_order_relaxed);
  if (keep_read_for_next_lane(posted, status, vendor_error, tally)) return;
  if (refused_by_peer(status) || local_fault(status)) blame(LaneFault::kRefused);
  const Opcode opcode = posted.operation->request.opcode;
  const bool harmless = opcode == Opcode::kRead || opcode == Opcode::kFlush;
  const bool believed = named || harmless || is_certain(sequence);
  if (believed && keep_until_reason_is_known(posted, status, vendor_error)) return;
  for_each(posted, [&](OperationRecord& operation) {
    mutex_.assert_held();
    if (!operation.outcome.ok) return;
    if (believed && refused_by_peer(status))
      operation.outcome = Outcome::failure(Code::kAccessRefused);
    else if (believed && local_fault(status))
      operation.outcome = Outcome::failure(Code::kProvider);
    else
      operation.outcome = outcome_on_broken_lane(operation, true, tally.now());
    operation.outcome.status = status;
    operation.outcome.detail = vendor_error;
  });
  settle(posted, tally);
}

/// Whether a read that has ended with kLocalQpOperationError may have failed because the device's
/// address was removed: see keep_read_for_next_lane().
bool QueuedLaneDriver::may_be_the_address(const OperationRecord& read) noexcept {
  if (suspect_.read != &read || suspect_.submitted != read.submitted)
    suspect_ = {.read = &read, .submitted = read.submitted, .failures = 0};
  return ++suspect_.failures <= kMaxTriesOfSuspect;
}

/// Whether a read whose request `posted` has failed may be repeated from its beginning: it is one
/// request, or its other requests have succeeded. A striped transfer repeats its parts itself.
bool QueuedLaneDriver::can_go_again(const Posted& posted) noexcept {
  const OperationRecord& operation = *posted.operation;
  if (operation.request.opcode != Opcode::kRead) return false;
  return operation.whole ||
         (!operation.part && operation.pieces == nullptr && operation.requests_in_flight == 1 &&
          all_planned(operation) && operation.outcome.ok);
}

/// Keeps reads that the broken lane did not carry out for the next lane, also reads that were
/// joined into one request. A joined read that is past its deadline ends. False: the request is not
/// such a read, and nothing was done.
///
/// A device reports kLocalQpOperationError when its address was removed, which does not depend on
/// the request, and some devices also for a fault of the request. So such a read is repeated, but
/// at most kMaxTriesOfSuspect times if it is the same read each time: an address that was restored
/// is not always usable at once, and a faulty request must not end one lane after another.
bool QueuedLaneDriver::keep_read_for_next_lane(Posted& posted, CompletionStatus status,
                                               std::uint32_t vendor_error,
                                               EndTally& tally) noexcept {
  const bool again =
      options_.revivable && can_go_again(posted) && !refused_by_peer(status) &&
      !local_fault(status) &&
      (status != CompletionStatus::kLocalQpOperationError || may_be_the_address(*posted.operation));
  if (!again) return false;
  OperationRecord* at = posted.operation;
  const bool joined = posted.joined;
  const Clock::time_point now = Clock::now();
  if (!at->whole) {
    if (posted.bounce_slot != SlotStore::kNone) options_.bounce->give_back(posted.bounce_slot);
    begin_again(*at);
  }
  posted = {};
  while (at != nullptr) {
    OperationRecord& operation = *std::exchange(at, joined ? at->next : nullptr);
    if (now < operation.deadline) {
      metrics_.reposted(cells_.recorder());
      wait_in_backlog(operation);
      continue;
    }
    operation.outcome = outcome_on_broken_lane(operation, true, now);
    operation.outcome.status = status;
    operation.outcome.detail = vendor_error;
    finish(operation, tally);
  }
  return true;
}

/// Keeps a request that the server has refused until the lane is released, since the reason is
/// asked for by a control request, and under locks with which lanes are taken. False: the server
/// did not refuse the request, another request is kept already, or there is no handler to ask.
bool QueuedLaneDriver::keep_until_reason_is_known(Posted& posted, CompletionStatus status,
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
  // Until then the request counts as in flight, so that an operation that is not whole does not end
  // before.
  if (!posted.operation->whole && posted.bounce_slot != SlotStore::kNone)
    options_.bounce->give_back(posted.bounce_slot);
  posted = {};
  return true;
}

/// Call it without the lane's lock. Blocks until the handler has returned the reason.
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
      REMORA_ASSERT(operation.whole || operation.requests_in_flight > 0,
                    "a request that was refused counts as in flight until its operation ends");
      if (operation.whole || --operation.requests_in_flight == 0) finish(operation, tally);
    }
    // The next lane would refuse the waiting operations of the same grant, too.
    if (broken() && !end_.for_good) refuse_waiting(tally);
  }
  waiters_.wake();
  tell_notifier();
  mutex_.unlock();
}

/// For a broken lane: ends the waiting operations of revoked grants. An operation of which a
/// request was posted ends with the lane: see finish_begun().
void QueuedLaneDriver::refuse_waiting(EndTally& tally) noexcept {
  if (backlog_.empty() || !options_.revoked) return;
  Reason why = Reason::kNone;
  backlog_.extract(
      [&](const OperationRecord& operation) {
        if (!operation.whole && (operation.any_posted || !operation.outcome.ok)) return false;
        why = options_.revoked(operation);
        return why != Reason::kNone;
      },
      [&](OperationRecord& operation) {
        mutex_.assert_held();
        operation.outcome = Outcome::failure(Code::kAccessRefused, why);
        finish(operation, tally);
      });
}

bool QueuedLaneDriver::carries(const RevocableGrant& grant) noexcept {
  // The thread that holds the lane may be waiting for this thread.
  if (!mutex_.try_lock()) return true;
  take_inbox();
  if (!broken()) {
    progress();
  } else if (!end_.for_good) {
    EndTally tally{metrics_, cells_.recorder()};
    refuse_waiting(tally);
    waiters_.wake();
  }
  bool any = false;
  for (std::uint64_t at = retired_sequence_; at != next_sequence_ && !any;) {
    const Posted& posted = posted_at(at);
    const OperationRecord* operation = posted.operation;
    any = grant.owns(*operation);
    // The operations of a run, or of a joined request, have the same opcode, but may be of several
    // regions, unless the run is uniform.
    for (std::uint32_t i = 1; i < posted.run_count && !posted.uniform && !any; ++i) {
      operation = operation->next;
      any = grant.owns(*operation);
    }
    if (posted.joined)
      for_each(posted, [&](const OperationRecord& each) { any = any || grant.owns(each); });
    at += posted.request_count();
  }
  for (const OperationRecord* at = backlog_.first; at != nullptr && !any; at = at->next)
    any = grant.owns(*at);
  release_lane(Release::kAtOnce);
  return any;
}

/// The reason as this lane knows it. If it is kLaneBroken, the session may know a better one.
Reason QueuedLaneDriver::why_broken() const noexcept {
  if (end_.reason != Reason::kNone && end_.reason != Reason::kLaneBroken) return end_.reason;
  return fault() == LaneFault::kNone ? Reason::kLaneBroken : Reason::kLaneVictim;
}

/// The outcome of an operation on a broken lane. `posted`: the lane had taken a request of the
/// operation.
Outcome QueuedLaneDriver::outcome_on_broken_lane(const OperationRecord& operation, bool posted,
                                                 Clock::time_point now) const noexcept {
  const bool expired = now >= operation.deadline;
  // The striped transfer counts its operation once; its parts are not counted.
  if (fault() != LaneFault::kNone && !end_.victims_ended && !expired &&
      (operation.whole || !operation.part))
    metrics_.victim(cells_.recorder(), fault());
  if (!operation.whole) posted = operation.any_posted;
  const bool uncertain = posted && operation.request.opcode != Opcode::kRead;
  if (uncertain)
    return Outcome::failure(Code::kIndeterminate, expired ? Reason::kExpired : why_broken());
  if (!expired) return session_gone(why_broken());
  // It has waited for another lane until its deadline, so the reason why there was none is more
  // useful.
  const bool waited = !posted && broken();
  return Outcome::failure(Code::kTimedOut, waited ? why_broken() : Reason::kExpired);
}

/// Ends operations that are past their deadlines: unposted ones alone, posted ones by breaking the
/// lane.
void QueuedLaneDriver::expire(Clock::time_point now) noexcept {
  bool any = false;
  // All operations of a run have the same deadline, so the first one is enough.
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

/// Ends unposted operations that are past their deadlines.
void QueuedLaneDriver::expire_backlog(Clock::time_point now) noexcept {
  EndTally tally{metrics_, cells_.recorder()};
  backlog_expires_ = Deadline::max();
  backlog_.extract(
      [&](const OperationRecord& operation) {
        mutex_.assert_held();
        const bool over =
            operation.deadline <= now && (operation.whole || operation.requests_in_flight == 0);
        if (!over) backlog_expires_ = std::min(backlog_expires_, operation.deadline);
        return over;
      },
      [&](OperationRecord& operation) {
        mutex_.assert_held();
        // If some of its requests were posted, they have completed, and a write has written some of
        // its bytes. If a request has failed, its outcome stays.
        if (operation.outcome.ok) operation.outcome = outcome_on_broken_lane(operation, false, now);
        finish(operation, tally);
      });
}

}  // namespace remora::detail
