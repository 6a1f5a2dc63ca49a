#include "client/posted_driver.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>
#include <utility>

#include "support/log.h"
#include "support/spin_pause.h"

namespace remora::detail {

using transport::LaneCompletion;
using transport::Opcode;

namespace {

/// How long a broken lane may take to flush before it is closed under the requests that are left.
/// All lanes of a session together stay within the two seconds that an operation may be late.
constexpr std::chrono::milliseconds kFlushTimeout{200};
/// A sleeping caller looks at the world at least this often.
constexpr std::chrono::milliseconds kSleepMost{100};

}  // namespace

PostedDriver::PostedDriver(std::unique_ptr<transport::Lane> lane, Options options,
                           ClientMetrics metrics, BrokenHandler on_broken)
    : lane_{std::move(lane)},
      options_{std::move(options)},
      metrics_{std::move(metrics)},
      on_broken_{std::move(on_broken)},
      ring_(std::bit_ceil(lane_->limits().depth)),
      mask_{ring_.size() - 1},
      chain_(lane_->limits().depth),
      pieces_(lane_->limits().depth),
      atomic_results_{lane_->atomic_results()},
      limits_{lane_->limits()} {
  metrics_.lane_opened(lane_->completion_capacity());
}

PostedDriver::~PostedDriver() {
  fail(Reason::kNone);
  metrics_.lane_closed(lane_->completion_capacity());
}

void PostedDriver::submit(OperationList operations) noexcept {
  if (operations.empty()) return;
  if (!mutex_.try_lock() && !leave_behind(operations)) return;
  take_over(operations);
  pump();
  leave();
}

/// Leaves operations to the lane's holder. True: there is none any more, and the lane is taken.
bool PostedDriver::leave_behind(OperationList& operations) noexcept {
  OperationRecord* const first = std::exchange(operations, {}).first;
  OperationRecord* last = first;
  while (last->next != nullptr) last = last->next;
  last->next = inbox_.load(std::memory_order_relaxed);
  while (!inbox_.compare_exchange_weak(last->next, first, std::memory_order_acq_rel,
                                       std::memory_order_relaxed)) {
  }
  // The holder exchanges on the inbox too, after letting go: either it sees this, or this came
  // later and finds the lane free.
  if (!mutex_.try_lock()) return false;
  collect();
  return true;
}

void PostedDriver::run(OperationRecord& operation, CompletionSink& sink) noexcept {
  // The record belongs to the lane until it is in the sink.
  const Deadline until = operation.deadline;
  OperationList alone;
  alone.append(operation);
  if (mutex_.try_lock() || leave_behind(alone)) {
    take_over(alone);
    pump();
    poll_completions();
    leave();
    if (sink.ready() != 0) return;
  }
  const auto earliest = [until] { return until; };
  wait(sink, 1, DeadlineSource{earliest});
}

void PostedDriver::leave() noexcept {
  while (true) {
    const bool tell = broken() && !std::exchange(broken_told_, true);
    tell_watchers();
    mutex_.unlock();
    if (tell && on_broken_) on_broken_();
    OperationRecord* none = nullptr;
    if (inbox_.compare_exchange_strong(none, nullptr, std::memory_order_acq_rel)) return;
    if (!mutex_.try_lock()) return;
    collect();
    pump();
  }
}

/// Takes over what others have left in the inbox.
void PostedDriver::collect() noexcept {
  if (inbox_.load(std::memory_order_relaxed) == nullptr) return;
  OperationList left;
  OperationRecord* first = inbox_.exchange(nullptr, std::memory_order_acquire);
  while (first != nullptr) left.append(*std::exchange(first, first->next));
  take_over(left);
}

void PostedDriver::take_over(OperationList& operations) noexcept {
  if (backlog_.empty()) [[likely]]
    backlog_expires_ = Deadline::min();
  else
    for (const OperationRecord* at = operations.first; at != nullptr; at = at->next)
      backlog_expires_ = std::min(backlog_expires_, at->deadline);
  backlog_.splice(operations);
  if (!broken()) [[likely]]
    return;
  EndTally tally{metrics_};
  fail_backlog(tally);
}

void PostedDriver::wait(CompletionSink& sink, std::size_t at_least,
                        DeadlineSource earliest_deadline) noexcept {
  std::optional<Clock::time_point> began;
  Deadline deadline{};
  Clock::duration waited{};
  while (true) {
    std::unique_lock<LightMutex> lock{mutex_, std::try_to_lock};
    if (lock.owns_lock()) {
      collect();
      progress();
    }
    const std::size_t ready = sink.ready();
    if (ready < at_least || ready == 0) {
      const Clock::time_point now = Clock::now();
      if (!began) {
        began = now;
        deadline = earliest_deadline();
      }
      waited = now - *began;
      if (now >= deadline) {
        if (!lock.owns_lock()) lock.lock();
        collect();
        expire(now);
        pump();
        deadline = earliest_deadline();
        // The same deadline again: what expired was broken off and completes below.
        if (deadline <= now) deadline = now + kSleepMost;
      } else if (ready < at_least && waited >= options_.spin) {
        if (!lock.owns_lock()) lock.lock();
        // While the lock was waited for, its holder may have moved what is waited for here.
        if (sink.ready() < at_least && !broken()) sleep(lock, std::min(deadline, now + kSleepMost));
      }
    }
    if (lock.owns_lock()) {
      lock.release();
      leave();
    }
    if (sink.ready() >= at_least) return;
    spin_pause(waited);
  }
}

void PostedDriver::progress_and_arm(CompletionSink& sink,
                                    DeadlineSource earliest_deadline) noexcept {
  mutex_.lock();
  collect();
  // Armed before looking: what completes after the look is told of.
  if (!broken()) {
    lane_->drain_events();
    (void)lane_->arm();
  }
  progress();
  if (sink.ready() == 0)
    if (const Clock::time_point now = Clock::now(); now >= earliest_deadline()) expire(now);
  leave();
}

bool PostedDriver::cancel(OperationRecord& operation) noexcept {
  mutex_.lock();
  collect();
  const bool withdrawn =
      (operation.whole || (!operation.any_posted && operation.requests_in_flight == 0)) &&
      backlog_.remove(operation);
  if (withdrawn) {
    operation.outcome = Outcome::failure(Code::kCancelled);
    EndTally tally{metrics_};
    finish(operation, tally);
  }
  pump();  // what others left, and what there is room for now
  leave();
  return withdrawn;
}

void PostedDriver::settle_events() noexcept {
  // Watchers are told before the lane is let go.
  mutex_.lock();
  leave();
}

void PostedDriver::tell_watchers() noexcept {
  if (watcher_ != nullptr) std::exchange(watcher_, nullptr)->tell();
}

void PostedDriver::fail(Reason reason) noexcept {
  mutex_.lock();
  collect();
  break_lane(reason);
  leave();
}

void PostedDriver::progress() noexcept {
  poll_completions();
  // What has waited here may have run out of time: it ends alone, as long as it is not posted.
  if (!backlog_.empty())
    if (const Clock::time_point now = Clock::now(); now >= backlog_expires_) expire_backlog(now);
  pump();
}

[[gnu::always_inline]] inline void PostedDriver::finish(OperationRecord& operation,
                                                        EndTally& tally) noexcept {
  if (operation.whole) [[likely]]
    tally.add(operation);
  else
    finish_split(operation, tally);
  if (Watcher* const watcher = operation.sink->watcher(); watcher != watcher_ && watcher != nullptr)
      [[unlikely]] {
    tell_watchers();
    watcher_ = watcher;
  }
  operation.sink->push(operation);
}

/// One request of `operation` is no longer with the lane.
[[gnu::always_inline]] inline void PostedDriver::settle(Posted& posted, OperationRecord& operation,
                                                        EndTally& tally) noexcept {
  if (posted.joined) [[unlikely]]
    return settle_joined(posted, tally);
  if (operation.whole) [[likely]]
    return finish(operation, tally);
  settle_part(posted, operation, tally);
}

void PostedDriver::settle_joined(Posted& posted, EndTally& tally) noexcept {
  posted.joined = false;
  for (OperationRecord* at = posted.operation; at != nullptr;) {
    OperationRecord& operation = *std::exchange(at, at->next);
    finish(operation, tally);
  }
}

void PostedDriver::settle_part(Posted& posted, OperationRecord& operation,
                               EndTally& tally) noexcept {
  if (posted.bounce_slot != SlotStore::kNone) options_.bounce->give_back(posted.bounce_slot);
  posted = {};
  if (--operation.requests_in_flight != 0) return;
  const bool planned = all_planned(operation) || !operation.outcome.ok;
  // An operation that is still first in the backlog is finished by pump() or fail_backlog().
  if (planned && backlog_.first != &operation) finish(operation, tally);
}

[[gnu::always_inline]] inline void PostedDriver::retire(std::uint64_t sequence,
                                                        EndTally& tally) noexcept {
  Posted& posted = ring_[sequence & mask_];
  OperationRecord& operation = *posted.operation;
  if (is_atomic(operation.request.opcode)) [[unlikely]]
    operation.old_value = atomic_results_[sequence & (atomic_results_.size() - 1)];
  else if (!operation.whole && posted.user != nullptr)
    std::memcpy(posted.user, options_.bounce->slot(posted.bounce_slot).data(), posted.length_bytes);
  ++retired_sequence_;
  settle(posted, operation, tally);
}

/// Turns the backlog into chains as far as there is room.
void PostedDriver::pump() noexcept {
  if (backlog_.empty() || broken()) return;
  const std::size_t room = limits_.depth - (next_sequence_ - retired_sequence_);
  chain_length_ = 0;
  chain_end_ = kNowhere;
  while (!backlog_.empty() && room > chain_length_) {
    OperationRecord& operation = *backlog_.first;
    if (operation.whole) [[likely]] {
      backlog_.take_first();
      add_whole(operation);
      continue;
    }
    chain_end_ = kNowhere;
    if (!plan(operation, room - chain_length_)) break;
    backlog_.take_first();
    // Failed in part, with nothing of it under way any more: nothing more of it is sent.
    if (operation.requests_in_flight == 0) {
      EndTally tally{metrics_};
      finish(operation, tally);
    }
  }
  if (chain_length_ != 0) post_chain();
}

[[gnu::always_inline]] inline void PostedDriver::add_whole(OperationRecord& operation) noexcept {
  if (operation.request.remote_address == chain_end_ && continues_chain(operation)) [[unlikely]]
    return join_chain(operation);
  add_to_chain(operation, operation.request);
  chain_last_ = &operation;
  chain_end_ = operation.request.remote_address + operation.request.length_bytes;
}

void PostedDriver::post_chain() noexcept {
  const std::uint64_t first = next_sequence_;
  const transport::PostOutcome outcome =
      lane_->post(transport::Chain{chain_.data(), chain_length_}, first);
  next_sequence_ += outcome.taken;
  // Of operations that are whole this is known by where they are.
  if (std::exchange(split_in_chain_, false))
    for (std::size_t i = 0; i < outcome.taken; ++i)
      ring_[(first + i) & mask_].operation->any_posted = true;
  metrics_.doorbell(outcome.taken, next_sequence_ - retired_sequence_);
  if (outcome.error == 0) [[likely]]
    return;
  log::debug("lane: a chain of {} was refused after {}: errno {}", chain_length_, outcome.taken,
             outcome.error);
  // A lane that refuses a request is of no use any more. What it did not take never left.
  broken_reason_ = Reason::kLaneBroken;
  {
    EndTally tally{metrics_};
    for (std::size_t i = outcome.taken; i < chain_length_; ++i)
      drop(ring_[(first + i) & mask_], tally);
  }
  break_lane(Reason::kLaneBroken);
}

/// Takes back a request that the lane did not take.
void PostedDriver::drop(Posted& posted, EndTally& tally) noexcept {
  for_each(posted, [&](OperationRecord& operation) {
    if (operation.outcome.ok) operation.outcome = lost(operation, false, tally.now());
  });
  settle(posted, *posted.operation, tally);
}

/// True when anything completed.
bool PostedDriver::poll_completions() noexcept {
  if (retired_sequence_ == next_sequence_) return false;
  std::array<LaneCompletion, 64> found;  // NOLINT(cppcoreguidelines-pro-type-member-init): 1 KiB
  std::size_t count = lane_->poll(found);
  if (count == 0) return false;
  std::size_t total = 0;
  bool failed = false;
  {
    EndTally tally{metrics_};
    while (count != 0) {
      for (std::size_t i = 0; i < count; ++i) {
        retire_through(found[i], tally);
        failed = failed || found[i].status != CompletionStatus::kSuccess;
      }
      total += count;
      if (count < found.size() || retired_sequence_ == next_sequence_) break;
      count = lane_->poll(found);
    }
    metrics_.polled(tally.recorder(), total, next_sequence_ - retired_sequence_);
  }
  if (failed) break_lane(Reason::kLaneBroken);
  sleepers_.wake();
  return true;
}

void PostedDriver::retire_through(const LaneCompletion& completion, EndTally& tally) noexcept {
  // Requests complete in order and one that fails always says so itself: those passed over are ok.
  while (retired_sequence_ < completion.sequence) retire(retired_sequence_, tally);
  if (retired_sequence_ != completion.sequence) return;
  if (completion.status == CompletionStatus::kSuccess) [[likely]]
    retire(completion.sequence, tally);
  else
    retire_failed(completion.sequence, completion.status, completion.vendor_error, tally);
}

void PostedDriver::retire_failed(std::uint64_t sequence, CompletionStatus status,
                                 std::uint32_t vendor_error, EndTally& tally) noexcept {
  Posted& posted = ring_[sequence & mask_];
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
  ++retired_sequence_;
  settle(posted, *posted.operation, tally);
}

/// How an operation ends that was with a lane that broke. `posted`: a request of it was.
Outcome PostedDriver::lost(const OperationRecord& operation, bool posted,
                           Clock::time_point now) const noexcept {
  const bool expired = now >= operation.deadline;
  if (!operation.whole) posted = operation.any_posted;
  if (operation.request.opcode == Opcode::kRead)
    return expired ? Outcome::failure(Code::kTimedOut)
                   : Outcome::failure(Code::kConnectionLost, broken_reason_);
  if (posted) return Outcome::failure(Code::kIndeterminate, broken_reason_);
  return expired ? Outcome::failure(Code::kTimedOut)
                 : Outcome::failure(Code::kConnectionLost, broken_reason_);
}

/// Ends what has run out of time: unposted operations by themselves, posted ones with their lane.
void PostedDriver::expire(Clock::time_point now) noexcept {
  bool any = false;
  for (std::uint64_t s = retired_sequence_; s != next_sequence_ && !any; ++s)
    for_each(ring_[s & mask_],
             [&](const OperationRecord& each) { any = any || each.deadline <= now; });
  if (any) return break_lane(Reason::kLaneBroken);
  expire_backlog(now);
}

/// Ends unposted operations that have run out of time.
void PostedDriver::expire_backlog(Clock::time_point now) noexcept {
  EndTally tally{metrics_};
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

void PostedDriver::break_lane(Reason reason) noexcept {
  if (broken()) return;
  broken_reason_ = reason;
  broken_.store(true, std::memory_order_release);
  if (reason != Reason::kNone) metrics_.lane_broken();
  lane_->break_off();
  const Deadline flushed_by = Clock::now() + kFlushTimeout;
  std::array<LaneCompletion, 64> found;
  while (retired_sequence_ != next_sequence_ && Clock::now() < flushed_by) {
    const std::size_t count = lane_->poll(found);
    if (count == 0) {
      relax();
      continue;
    }
    EndTally tally{metrics_};
    for (std::size_t i = 0; i < count; ++i) retire_through(found[i], tally);
  }
  // From here on nothing touches a buffer, so what has not completed may end.
  lane_->close();
  EndTally tally{metrics_};
  while (retired_sequence_ != next_sequence_)
    retire_failed(retired_sequence_, CompletionStatus::kFlushed, 0, tally);
  fail_backlog(tally);
  sleepers_.wake();
}

void PostedDriver::fail_backlog(EndTally& tally) noexcept {
  while (!backlog_.empty()) {
    OperationRecord& operation = backlog_.take_first();
    if (operation.outcome.ok) operation.outcome = lost(operation, false, tally.now());
    finish(operation, tally);
  }
}

/// Comes back with the lock, after something completed, or at `until` at the latest.
void PostedDriver::sleep(std::unique_lock<LightMutex>& lock, Deadline until) noexcept {
  if (sleepers_.take_descriptor()) {
    if (lane_->arm() && !poll_completions()) {
      sleepers_.lie_down();
      lock.release();
      leave();
      sleepers_.sleep_on(lane_->event_fd(), until);
      lock = std::unique_lock<LightMutex>{mutex_};
      lane_->drain_events();
      // Others may sleep on the same descriptor, for what has not completed yet.
      if (!broken()) (void)lane_->arm();
    }
    sleepers_.give_descriptor_back();
  } else {
    const std::uint64_t joined = sleepers_.join();
    lock.release();
    leave();
    sleepers_.sleep_until_woken(joined, until);
    lock = std::unique_lock<LightMutex>{mutex_};
    sleepers_.part();
  }
  collect();
  progress();
}

}  // namespace remora::detail
