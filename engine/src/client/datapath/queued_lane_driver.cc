#include "client/datapath/queued_lane_driver.h"

#include <algorithm>
#include <array>
#include <bit>
#include <optional>
#include <utility>

#include "base/log.h"
#include "base/spin_pause.h"

namespace remora::detail {

using transport::LaneCompletion;
using transport::Opcode;

namespace {

/// A sleeping caller looks at the world at least this often.
constexpr std::chrono::milliseconds kMaxSleep{100};

}  // namespace

QueuedLaneDriver::QueuedLaneDriver(std::unique_ptr<transport::Lane> lane, Options options,
                                   ClientMetrics metrics, BrokenHandler on_broken)
    : lane_{std::move(lane)},
      options_{std::move(options)},
      metrics_{std::move(metrics)},
      cells_{metrics_.own_cells()},
      on_broken_{std::move(on_broken)},
      ring_(std::bit_ceil(lane_->limits().depth)),
      mask_{ring_.size() - 1},
      chain_(lane_->limits().depth),
      pieces_(lane_->limits().depth),
      atomic_results_{lane_->atomic_results()},
      limits_{lane_->limits()} {
  lane_->count_inline(cells_.recorder(), metrics_.inline_requests());
  metrics_.lane_opened(lane_->completion_capacity());
  if (!options_.revivable) return;
  if (auto events = FdSet::create(); events && events->add(lane_->event_fd()))
    events_.emplace(std::move(*events));
  else
    options_.revivable = false;  // no descriptors are left: it then ends with its lane
}

QueuedLaneDriver::~QueuedLaneDriver() {
  fail(Reason::kNone);
  metrics_.lane_closed(lane_->completion_capacity());
}

void QueuedLaneDriver::submit(OperationList operations) noexcept {
  if (operations.empty()) return;
  if (!mutex_.try_lock() && !leave_behind(operations)) return;
  take_over(operations);
  pump();
  leave();
}

/// Leaves operations to the lane's holder. True: there is none any more, and the lane is taken.
bool QueuedLaneDriver::leave_behind(OperationList& operations) noexcept {
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

void QueuedLaneDriver::run(OperationRecord& operation) noexcept {
  const bool taken = mutex_.try_lock();
  if (taken && operation.whole && backlog_.empty() && next_sequence_ == retired_sequence_ &&
      !broken()) [[likely]]
    return run_on_idle_lane(operation);
  run_in_line(operation, taken);
}

/// With nothing before it an operation needs no list and no place in the ring, and no sink where it
/// ends at once.
[[gnu::always_inline]] inline void QueuedLaneDriver::run_on_idle_lane(
    OperationRecord& operation) noexcept {
  const std::uint64_t sequence = next_sequence_;
  const transport::WorkRequest* const request = &operation.request;
  const transport::PostOutcome outcome = lane_->post(transport::Chain{&request, 1}, sequence);
  if (outcome.error != 0) [[unlikely]]
    return run_on(operation, outcome, {});
  const metrics::Recorder recorder = cells_.recorder();
  metrics_.doorbell_of_one(recorder);
  std::array<LaneCompletion, 1> found;  // NOLINT(cppcoreguidelines-pro-type-member-init)
  const std::size_t count = lane_->poll(found);
  if (count == 0 || found[0].status != CompletionStatus::kSuccess) [[unlikely]]
    return run_on(operation, outcome, std::span{found}.first(count));
  next_sequence_ = retired_sequence_ = sequence + 1;
  if (is_atomic(operation.request.opcode)) operation.old_value = atomic_result(sequence);
  metrics_.ended(recorder, operation.request.opcode, latency_now() - operation.submitted, 1,
                 operation.length_bytes);
  metrics_.polled(recorder, 1, 0);
  leave();
}

/// Goes on with an operation that was posted on an idle lane and is not done yet, or not well.
void QueuedLaneDriver::run_on(OperationRecord& operation, const transport::PostOutcome& outcome,
                              std::span<LaneCompletion> found) noexcept {
  // The record belongs to the lane until it is in the sink.
  const Deadline until = operation.deadline;
  std::array<CompletionSink::Run, 1> ring{};
  CompletionSink sink{ring};
  operation.sink = &sink;
  const std::uint64_t sequence = next_sequence_;
  posted_at(sequence) = {.operation = &operation,
                         .run_count = is_atomic(operation.request.opcode) ? 0U : 1U,
                         .run_bytes = operation.length_bytes};
  chain_length_ = 1;
  next_sequence_ += outcome.taken;
  if (outcome.error != 0) {
    metrics_.doorbell(cells_.recorder(), outcome.taken, signaled_count(outcome), outcome.taken);
    refuse_rest(outcome, sequence);
  } else if (!found.empty()) {
    take_completions(found, 1);
  }
  leave();
  const auto earliest = [until] { return until; };
  if (sink.ready() == 0) wait(sink, 1, DeadlineSource{earliest});
}

/// Behind what others have on the lane, or what holds it.
void QueuedLaneDriver::run_in_line(OperationRecord& operation, bool taken) noexcept {
  const Deadline until = operation.deadline;
  std::array<CompletionSink::Run, 1> ring{};
  CompletionSink sink{ring};
  operation.sink = &sink;
  OperationList alone;
  alone.append(operation);
  if (taken || leave_behind(alone)) {
    take_over(alone);
    pump();
    poll_completions();
    leave();
    if (sink.ready() != 0) return;
  }
  const auto earliest = [until] { return until; };
  wait(sink, 1, DeadlineSource{earliest});
}

/// Lets the lane go and tells the callers that are to hear of it.
void QueuedLaneDriver::let_go() noexcept {
  const bool tell = broken() && !std::exchange(broken_told_, true);
  const Refused refused = std::exchange(refused_, {});
  tell_watchers();
  mutex_.unlock();
  // Before the session is interrupted: the server can still be asked.
  if (refused.first != nullptr) end_refused(refused);
  if (tell && on_broken_) on_broken_();
}

/// Another thread left something between the last look and the letting go. Who has the lane now
/// will see it, or it is this thread.
void QueuedLaneDriver::leave_again() noexcept {
  while (mutex_.try_lock()) {
    collect();
    pump();
    let_go();
    if (!anything_left()) return;
  }
}

/// Takes over what others have left in the inbox.
void QueuedLaneDriver::collect() noexcept {
  if (inbox_.load(std::memory_order_relaxed) == nullptr) return;
  OperationList left;
  OperationRecord* first = inbox_.exchange(nullptr, std::memory_order_acquire);
  while (first != nullptr) left.append(*std::exchange(first, first->next));
  take_over(left);
}

void QueuedLaneDriver::take_over(OperationList& operations) noexcept {
  if (backlog_.empty()) [[likely]]
    backlog_expires_ = Deadline::min();
  else
    for (const OperationRecord* at = operations.first; at != nullptr; at = at->next)
      backlog_expires_ = std::min(backlog_expires_, at->deadline);
  backlog_.splice(operations);
  if (!ended_) [[likely]]
    return;
  // What comes to a lane that has broken before is no victim.
  victims_ended_ = true;
  EndTally tally{metrics_, cells_.recorder()};
  fail_backlog(tally);
}

void QueuedLaneDriver::wait(CompletionSink& sink, std::size_t at_least,
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
        if (deadline <= now) deadline = now + kMaxSleep;
      } else if (ready < at_least && waited >= options_.spin) {
        if (!lock.owns_lock()) lock.lock();
        // While the lock was waited for, its holder may have moved what is waited for here.
        const Deadline until = std::min(deadline, now + kMaxSleep);
        if (sink.ready() < at_least)
          broken() ? sleep_while_broken(lock, until) : sleep(lock, until);
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

void QueuedLaneDriver::progress_and_arm(CompletionSink& sink,
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

bool QueuedLaneDriver::cancel(OperationRecord& operation) noexcept {
  mutex_.lock();
  collect();
  const bool withdrawn =
      (operation.whole || (!operation.any_posted && operation.requests_in_flight == 0)) &&
      backlog_.remove(operation);
  if (withdrawn) {
    operation.outcome = Outcome::failure(Code::kCancelled);
    EndTally tally{metrics_, cells_.recorder()};
    finish(operation, tally);
  }
  pump();  // what others left, and what there is room for now
  leave();
  return withdrawn;
}

void QueuedLaneDriver::settle_events() noexcept {
  // Watchers are told before the lane is let go.
  mutex_.lock();
  leave();
}

void QueuedLaneDriver::tell_watchers() noexcept {
  if (watcher_ != nullptr) std::exchange(watcher_, nullptr)->tell();
}

void QueuedLaneDriver::fail(Reason reason) noexcept {
  mutex_.lock();
  collect();
  options_.revivable = false;
  if (broken())
    end_for_good(reason);
  else
    break_lane(reason);
  leave();
}

void QueuedLaneDriver::interrupt(Reason reason) noexcept {
  mutex_.lock();
  collect();
  break_lane(reason);
  leave();
}

void QueuedLaneDriver::progress() noexcept {
  poll_completions();
  // What has waited here may have run out of time: it ends alone, as long as it is not posted.
  if (!backlog_.empty())
    if (const Clock::time_point now = Clock::now(); now >= backlog_expires_) expire_backlog(now);
  pump();
}

/// Turns the backlog into chains as far as there is room.
void QueuedLaneDriver::pump() noexcept {
  if (backlog_.empty() || broken()) return;
  const std::size_t room = limits_.depth - (next_sequence_ - retired_sequence_);
  chain_length_ = 0;
  chain_end_ = kNowhere;
  while (!backlog_.empty() && room > chain_length_) {
    OperationRecord& operation = *backlog_.first;
    if (operation.whole) [[likely]] {
      add_whole(room - chain_length_);
      continue;
    }
    chain_end_ = kNowhere;
    if (!plan(operation, room - chain_length_)) break;
    backlog_.take_first();
    // Failed in part, with nothing of it under way any more: nothing more of it is sent.
    if (operation.requests_in_flight == 0) {
      EndTally tally{metrics_, cells_.recorder()};
      finish(operation, tally);
    }
  }
  if (chain_length_ != 0) post_chain();
}

/// Puts the first of the backlog, which is whole, into the chain, and those that follow it.
[[gnu::always_inline]] inline void QueuedLaneDriver::add_whole(std::size_t room) noexcept {
  OperationRecord* at = backlog_.first;
  if (at->request.remote_address == chain_end_ && continues_chain(*at)) [[unlikely]] {
    backlog_.take_first();
    return join_chain(*at);
  }
  chain_run_ = next_sequence_ + chain_length_;
  Posted& posted = posted_at(chain_run_);
  posted.operation = at;
  posted.joined = false;
  const transport::WorkRequest** const begin = &chain_[chain_length_];
  const transport::WorkRequest** const behind = begin + std::min(room, backlog_.count);
  const transport::WorkRequest** place = begin;
  OperationRecord* last = nullptr;
  std::uint64_t end = 0;
  std::uint64_t bytes = 0;
  do {
    *place++ = &at->request;
    last = at;
    end = at->request.remote_address + at->request.length_bytes;
    bytes += at->request.length_bytes;
    at = at->next;
    // What goes on where this one ends is joined to it.
  } while (place != behind && at->follows && at->request.remote_address != end);
  const auto count = static_cast<std::size_t>(place - begin);
  chain_length_ += count;
  chain_last_ = last;
  chain_end_ = end;
  backlog_.drop_first(count, at);
  posted.run_count =
      is_atomic(posted.operation->request.opcode) ? 0 : static_cast<std::uint32_t>(count);
  posted.run_bytes = bytes;
}

void QueuedLaneDriver::post_chain() noexcept {
  const std::uint64_t first = next_sequence_;
  const transport::PostOutcome outcome =
      lane_->post(transport::Chain{chain_.data(), chain_length_}, first);
  next_sequence_ += outcome.taken;
  // Of operations that are whole this is known by where they are.
  if (std::exchange(split_in_chain_, false))
    for (std::uint64_t at = first; at < next_sequence_; at += posted_at(at).request_count())
      posted_at(at).operation->any_posted = true;
  metrics_.doorbell(cells_.recorder(), outcome.taken, signaled_count(outcome),
                    next_sequence_ - retired_sequence_);
  if (outcome.error != 0) [[unlikely]]
    refuse_rest(outcome, first);
}

/// Of the chain just posted.
std::size_t QueuedLaneDriver::signaled_count(const transport::PostOutcome& outcome) const noexcept {
  const std::size_t end = outcome.taken == chain_length_ ? 1 : 0;
  const std::size_t within = chain_length_ > 1 ? lane_->signaled_within() : 0;
  return std::min(outcome.taken, end + within);
}

/// The lane did not take all of the chain that begins at sequence `first`.
void QueuedLaneDriver::refuse_rest(const transport::PostOutcome& outcome,
                                   std::uint64_t first) noexcept {
  log::debug("lane: a chain of {} was refused after {}: errno {}", chain_length_, outcome.taken,
             outcome.error);
  // A lane that refuses a request is of no use any more. What it did not take never left.
  broken_reason_ = Reason::kLaneBroken;
  {
    EndTally tally{metrics_, cells_.recorder()};
    std::uint64_t at = first;
    for (std::uint64_t behind = at; behind < next_sequence_; at = behind) {
      behind += posted_at(at).request_count();
      if (behind > next_sequence_) cut_run(at, next_sequence_ - at);
      behind = std::min(behind, next_sequence_);
    }
    while (at != first + chain_length_) drop(at++, tally);
  }
  break_lane(Reason::kLaneBroken);
}

/// Comes back with the lock, after something completed, or at `until` at the latest.
void QueuedLaneDriver::sleep(std::unique_lock<LightMutex>& lock, Deadline until) noexcept {
  if (sleepers_.take_descriptor()) {
    if (lane_->arm() && !poll_completions()) {
      sleepers_.lie_down();
      // From here on another lane may follow, and this one go; then the sleeper is woken.
      const int lane_fd = lane_->event_fd();
      lock.release();
      leave();
      sleepers_.sleep_on(lane_fd, until);
      lock = std::unique_lock<LightMutex>{mutex_};
      lane_->drain_events();
      // Others may sleep on the same descriptor, for what has not completed yet.
      if (!broken()) (void)lane_->arm();
    }
    sleepers_.give_descriptor_back();
  } else {
    sleep_until_woken(lock, until);
  }
  collect();
  progress();
}

/// As sleep(), with no lane to sleep on: until another follows, or the last has ended.
void QueuedLaneDriver::sleep_while_broken(std::unique_lock<LightMutex>& lock,
                                          Deadline until) noexcept {
  sleep_until_woken(lock, until);
  collect();
  progress();
}

/// Without the lane, which is had again on return.
void QueuedLaneDriver::sleep_until_woken(std::unique_lock<LightMutex>& lock,
                                         Deadline until) noexcept {
  const std::uint64_t joined = sleepers_.join();
  lock.release();
  leave();
  sleepers_.sleep_until_woken(joined, until);
  lock = std::unique_lock<LightMutex>{mutex_};
  sleepers_.part();
}

bool QueuedLaneDriver::replace(std::unique_ptr<transport::Lane> lane) noexcept {
  const std::lock_guard lock{mutex_};
  const transport::Lane::Limits& now = lane->limits();
  // What was checked against the old limits must fit the new ones, and what was made for them.
  const bool fits = now.depth <= chain_.size() &&
                    now.transfer_bytes_max >= limits_.transfer_bytes_max &&
                    now.inline_bytes_max >= limits_.inline_bytes_max &&
                    now.writes_zeroes == limits_.writes_zeroes &&
                    (now.initiator_depth != 0) == (limits_.initiator_depth != 0);
  if (!fits || !broken() || ended_ || !events_->add(lane->event_fd())) return false;
  metrics_.lane_closed(lane_->completion_capacity());
  lane_ = std::move(lane);
  flush_by_.store(0);
  metrics_.lane_opened(lane_->completion_capacity());
  lane_->count_inline(cells_.recorder(), metrics_.inline_requests());
  limits_.depth = now.depth;
  limits_.initiator_depth = now.initiator_depth;
  atomic_results_ = lane_->atomic_results();
  next_sequence_ = retired_sequence_ = 0;
  return true;
}

void QueuedLaneDriver::go_on() noexcept {
  mutex_.lock();
  if (broken() && !ended_) {
    broken_told_ = victims_ended_ = false;
    broken_reason_ = Reason::kNone;
    fault_.store(LaneFault::kNone, std::memory_order_relaxed);
    broken_.store(false, std::memory_order_release);
    breaking_.store(false, std::memory_order_release);
    // A caller that waits by its own event loop is to look: it may be that nothing else tells it.
    (void)lane_->arm();
    collect();
    {
      EndTally tally{metrics_, cells_.recorder()};
      refuse_waiting(tally);
    }
    pump();
    sleepers_.wake();
  }
  leave();
}

}  // namespace remora::detail
