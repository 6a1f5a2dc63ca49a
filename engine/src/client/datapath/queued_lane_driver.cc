#include "client/datapath/queued_lane_driver.h"

#include <algorithm>
#include <array>
#include <bit>
#include <optional>
#include <utility>

#include <remora/assert.h>

#include "base/log.h"
#include "base/spin_pause.h"

namespace remora::detail {

using transport::LaneCompletion;
using transport::Opcode;

namespace {

/// A sleeping caller wakes at least this often.
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
      chain_{.requests = std::vector<const transport::WorkRequest*>(lane_->limits().depth),
             .pieces = std::vector<transport::WorkRequest>(lane_->limits().depth)},
      atomic_results_{lane_->atomic_results()},
      limits_{lane_->limits()},
      depth_{limits_.depth} {
  lane_->count_inline(cells_.recorder(), metrics_.inline_requests());
  set_rail(lane_->rail());
  if (const auto rail = this->rail()) metrics_.rail_lane_opened(rail->device);
  metrics_.lane_opened(lane_->completion_capacity());
  if (auto events = FdSet::create(); events && events->add(lane_->event_fd()))
    events_.emplace(std::move(*events));
  else
    options_.revivable = false;  // no descriptors are left, so no lane will follow
}

QueuedLaneDriver::~QueuedLaneDriver() {
  fail(Reason::kNone);
  REMORA_ASSERT(inbox_.load() == nullptr, "a driver outlives the operations that it was given");
  metrics_.lane_closed(lane_->completion_capacity());
  if (const auto rail = this->rail()) metrics_.rail_lane_closed(rail->device);
}

void QueuedLaneDriver::submit(OperationList operations) noexcept {
  if (operations.empty()) return;
  if (!mutex_.try_lock() && !put_in_inbox(operations)) return;
  add_to_backlog(operations);
  post_backlog();
  release_lane(Release::kAtOnce);
}

std::size_t QueuedLaneDriver::post_run(const UniformRun& run) noexcept {
  if (!mutex_.try_lock()) return 0;
  std::size_t count = 0;
  if (backlog_.empty() && !broken()) [[likely]]
    count = std::min<std::size_t>(run.requests.size(),
                                  limits_.depth - (next_sequence_ - retired_sequence_));
  if (count != 0) {
    std::uint64_t bytes = run.bytes;
    for (const transport::WorkRequest* request : run.requests.subspan(count))
      bytes -= request->length_bytes;
    chain_.length = count;
    chain_.run = next_sequence_;
    posted_at(chain_.run) = {.operation = run.first,
                             .run_count = static_cast<std::uint32_t>(count),
                             .uniform = true,
                             .run_bytes = bytes};
    post_chain(run.requests.first(count));
    // The caller waits for the run, and would poll as soon as it has returned. If the lane has
    // completed the run by then, the caller need not take the lane again.
    if (!broken()) [[likely]]
      poll_completions();
  }
  release_lane(Release::kAtOnce);
  return count;
}

/// Leaves operations for the holder of the lane. True: the holder has released the lane, and this
/// thread has taken it.
bool QueuedLaneDriver::put_in_inbox(OperationList& operations) noexcept {
  OperationRecord* const first = std::exchange(operations, {}).first;
  OperationRecord* last = first;
  while (last->next != nullptr) last = last->next;
  last->next = inbox_.load(std::memory_order_relaxed);
  while (!inbox_.compare_exchange_weak(last->next, first, std::memory_order_acq_rel,
                                       std::memory_order_relaxed)) {
  }
  // The holder checks the inbox again after it has released the lane. Either it finds these
  // operations, or this thread finds the lane free.
  if (!mutex_.try_lock()) return false;
  take_inbox();
  return true;
}

void QueuedLaneDriver::run(OperationRecord& operation) noexcept {
  const bool taken = mutex_.try_lock();
  if (taken && operation.whole && backlog_.empty() && next_sequence_ == retired_sequence_ &&
      !broken()) [[likely]]
    return run_on_idle_lane(operation);
  run_in_line(operation, taken);
}

/// On an idle lane an operation needs no list and no place in the ring, and no sink if it completes
/// at once.
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
  release_lane();
}

/// Continues with an operation that was posted on an idle lane and has not completed, or has
/// failed.
void QueuedLaneDriver::run_on(OperationRecord& operation, const transport::PostOutcome& outcome,
                              std::span<LaneCompletion> found) noexcept {
  // From here on the record belongs to the lane until it is in the sink.
  const Deadline until = operation.deadline;
  std::array<CompletionSink::Run, 1> ring{};
  CompletionSink sink{ring};
  operation.sink = &sink;
  const std::uint64_t sequence = next_sequence_;
  posted_at(sequence) = {.operation = &operation,
                         .run_count = is_atomic(operation.request.opcode) ? 0U : 1U,
                         .ends_chain = true,
                         .run_bytes = operation.length_bytes};
  chain_.length = 1;
  next_sequence_ += outcome.taken;
  if (outcome.error != 0) {
    metrics_.doorbell(cells_.recorder(), outcome.taken, signaled_count(outcome), outcome.taken);
    refuse_rest(outcome, sequence);
  } else if (!found.empty()) {
    take_completions(found, 1);
  }
  release_lane();
  const auto earliest = [until] { return until; };
  if (sink.ready() == 0) wait(sink, 1, DeadlineSource{earliest});
}

/// Runs the operation after those of other threads, or after the holder of the lane has released
/// it.
void QueuedLaneDriver::run_in_line(OperationRecord& operation, bool taken) noexcept {
  const Deadline until = operation.deadline;
  std::array<CompletionSink::Run, 1> ring{};
  CompletionSink sink{ring};
  operation.sink = &sink;
  OperationList single;
  single.append(operation);
  if (taken || put_in_inbox(single)) {
    add_to_backlog(single);
    post_backlog();
    poll_completions();
    release_lane();
    if (sink.ready() != 0) return;
  }
  const auto earliest = [until] { return until; };
  wait(sink, 1, DeadlineSource{earliest});
}

/// Another thread has left operations after this thread's last check of the inbox. This thread
/// posts them, unless another thread holds the lane now: then that thread does.
void QueuedLaneDriver::post_inbox_and_release(Release release) noexcept {
  while (mutex_.try_lock()) {
    take_inbox();
    post_backlog();
    release_and_tell(release);
    if (!inbox_filled()) return;
  }
}

/// Moves the operations that other threads have left from the inbox to the backlog.
void QueuedLaneDriver::take_inbox() noexcept {
  if (inbox_.load(std::memory_order_relaxed) == nullptr) return;
  OperationList left;
  OperationRecord* first = inbox_.exchange(nullptr, std::memory_order_acquire);
  while (first != nullptr) left.append(*std::exchange(first, first->next));
  add_to_backlog(left);
}

void QueuedLaneDriver::add_to_backlog(OperationList& operations) noexcept {
  if (backlog_.empty()) [[likely]]
    backlog_expires_ = Deadline::min();
  else
    for (const OperationRecord* at = operations.first; at != nullptr; at = at->next)
      backlog_expires_ = std::min(backlog_expires_, at->deadline);
  backlog_.splice(operations);
  if (!end_.for_good) [[likely]]
    return;
  // An operation that is submitted after the lane broke is not a victim.
  end_.victims_ended = true;
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
      take_inbox();
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
        if (!lock.owns_lock()) {
          if (at_least == 0 && !lock_unless_ending()) return;
          lock =
              at_least == 0 ? std::unique_lock{mutex_, std::adopt_lock} : std::unique_lock{mutex_};
        }
        take_inbox();
        expire(now);
        post_backlog();
        deadline = earliest_deadline();
        // The same deadline again: expire() has ended its operation, or release_lane() will below.
        if (deadline <= now) deadline = now + kMaxSleep;
      } else if (ready < at_least && waited >= options_.spin) {
        if (!lock.owns_lock()) lock.lock();
        // While this thread waited for the lock, the holder may have completed the operations.
        const Deadline until = std::min(deadline, now + kMaxSleep);
        if (sink.ready() < at_least)
          broken() ? sleep_while_broken(lock, until) : sleep(lock, until);
      }
    }
    if (lock.owns_lock()) {
      lock.release();
      release_lane(at_least == 0 ? Release::kAtOnce : Release::kMayWait);
    }
    if (sink.ready() >= at_least) return;
    spin_pause(waited);
  }
}

void QueuedLaneDriver::progress_and_arm(CompletionSink& sink,
                                        DeadlineSource earliest_deadline) noexcept {
  if (!lock_unless_ending()) return;  // the thread that ends the lane notifies the sink
  take_inbox();
  // Armed before the check, so that the lane signals a completion that comes after it.
  if (!broken()) {
    lane_->drain_events();
    (void)lane_->arm();
  }
  progress();
  if (sink.ready() == 0)
    if (const Clock::time_point now = Clock::now(); now >= earliest_deadline()) expire(now);
  release_lane(Release::kAtOnce);
}

bool QueuedLaneDriver::cancel(OperationRecord& operation) noexcept {
  if (!lock_unless_ending()) return false;
  take_inbox();
  const bool withdrawn =
      (operation.whole || (!operation.any_posted && operation.requests_in_flight == 0)) &&
      backlog_.remove(operation);
  if (withdrawn) {
    operation.outcome = Outcome::failure(Code::kCancelled);
    EndTally tally{metrics_, cells_.recorder()};
    finish(operation, tally);
  }
  post_backlog();  // operations that other threads left, or that waited for room
  release_lane(Release::kAtOnce);
  return withdrawn;
}

void QueuedLaneDriver::settle_events() noexcept {
  // A thread that has pushed notifies before it releases the lane or waits for a device.
  if (lock_unless(waits_for_device_)) release_lane(Release::kAtOnce);
}

void QueuedLaneDriver::tell_notifier() noexcept {
  if (notifier_ != nullptr) std::exchange(notifier_, nullptr)->notify();
}

void QueuedLaneDriver::fail(Reason reason) noexcept {
  mutex_.lock();
  take_inbox();
  // If the lane is broken already, its posted requests end for the reason why it broke. Operations
  // that wait for another lane end for `reason`.
  if (ending()) end_lane();
  options_.revivable = false;
  end_hold();
  if (broken())
    end_for_good(reason);
  else
    break_lane(reason);
  release_lane();
}

void QueuedLaneDriver::progress() noexcept {
  poll_completions();
  // Unposted operations may be past their deadlines. They end without breaking the lane.
  if (!backlog_.empty())
    if (const Clock::time_point now = Clock::now(); now >= backlog_expires_) expire_backlog(now);
  post_backlog();
}

/// Posts operations of the backlog as a chain, as far as the lane has room.
void QueuedLaneDriver::post_backlog() noexcept {
  if (backlog_.empty() || broken()) return;
  const std::size_t room = limits_.depth - (next_sequence_ - retired_sequence_);
  chain_.length = 0;
  chain_.end = kNowhere;
  while (!backlog_.empty() && room > chain_.length) {
    OperationRecord& operation = *backlog_.first;
    if (operation.whole) [[likely]] {
      add_whole(room - chain_.length);
      continue;
    }
    chain_.end = kNowhere;
    if (!plan(operation, room - chain_.length)) break;
    backlog_.take_first();
    // One of its requests has failed and none is in flight, so the rest is not sent.
    if (operation.requests_in_flight == 0) {
      EndTally tally{metrics_, cells_.recorder()};
      finish(operation, tally);
    }
  }
  if (chain_.length != 0) post_chain({chain_.requests.data(), chain_.length});
}

/// Adds the first operation of the backlog, which is whole, to the chain, with the operations that
/// follow it.
[[gnu::always_inline]] inline void QueuedLaneDriver::add_whole(std::size_t room) noexcept {
  OperationRecord* at = backlog_.first;
  if (at->request.remote_address == chain_.end && continues_chain(*at)) [[unlikely]] {
    backlog_.take_first();
    return join_chain(*at);
  }
  chain_.run = next_sequence_ + chain_.length;
  Posted& posted = posted_at(chain_.run);
  posted.operation = at;
  posted.joined = posted.ends_chain = posted.uniform = false;
  const transport::WorkRequest** const begin = &chain_.requests[chain_.length];
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
    // The next call joins an operation that begins where this one ends.
  } while (place != behind && at->follows && at->request.remote_address != end);
  const auto count = static_cast<std::size_t>(place - begin);
  chain_.length += count;
  chain_.last = last;
  chain_.end = end;
  backlog_.drop_first(count, at);
  posted.run_count =
      is_atomic(posted.operation->request.opcode) ? 0 : static_cast<std::uint32_t>(count);
  posted.run_bytes = bytes;
}

/// Posts the requests whose entries are in the ring.
[[gnu::always_inline]] inline void QueuedLaneDriver::post_chain(
    transport::Chain requests) noexcept {
  const std::uint64_t first = next_sequence_;
  REMORA_ASSERT_HOT(chain_.run - first < chain_.length, "the last entry is of this chain");
  REMORA_ASSERT_HOT(first - retired_sequence_ + chain_.length <= limits_.depth,
                    "a lane has no more requests than its depth");
  posted_at(chain_.run).ends_chain = true;
  const transport::PostOutcome outcome = lane_->post(requests, first);
  REMORA_ASSERT_HOT(
      outcome.taken == chain_.length || (outcome.taken < chain_.length && outcome.error != 0),
      "a lane takes the whole chain, or says why it does not");
  next_sequence_ += outcome.taken;
  // The place of a whole operation tells whether it was posted: it is in the ring or in the
  // backlog.
  if (std::exchange(chain_.any_split, false))
    for (std::uint64_t at = first; at < next_sequence_; at += posted_at(at).request_count())
      posted_at(at).operation->any_posted = true;
  metrics_.doorbell(cells_.recorder(), outcome.taken, signaled_count(outcome),
                    next_sequence_ - retired_sequence_);
  if (outcome.error != 0) [[unlikely]]
    refuse_rest(outcome, first);
}

/// Number of signaled requests in the chain that was posted last.
std::size_t QueuedLaneDriver::signaled_count(const transport::PostOutcome& outcome) const noexcept {
  const std::size_t end = outcome.taken == chain_.length ? 1 : 0;
  const std::size_t within = chain_.length > 1 ? lane_->signaled_within() : 0;
  return std::min(outcome.taken, end + within);
}

/// The lane did not take the whole chain that begins at sequence `first`.
void QueuedLaneDriver::refuse_rest(const transport::PostOutcome& outcome,
                                   std::uint64_t first) noexcept {
  log::debug("lane: a chain of {} was refused after {}: errno {}", chain_.length, outcome.taken,
             outcome.error);
  // A lane that refuses a request is broken. The requests that it did not take were never sent.
  end_.reason = Reason::kLaneBroken;
  {
    EndTally tally{metrics_, cells_.recorder()};
    std::uint64_t at = first;
    for (std::uint64_t behind = at; behind < next_sequence_; at = behind) {
      behind += posted_at(at).request_count();
      if (behind > next_sequence_) cut_run(at, next_sequence_ - at);
      behind = std::min(behind, next_sequence_);
    }
    while (at != first + chain_.length) return_unposted(at++, tally);
  }
  break_lane(Reason::kLaneBroken);
}

/// Sleeps until an operation completes, or `until`; returns with the lock.
void QueuedLaneDriver::sleep(std::unique_lock<LightMutex>& lock, Deadline until) noexcept {
  if (waiters_.take_descriptor()) {
    if (lane_->arm() && !poll_completions()) {
      waiters_.announce_sleep();
      // From here on another lane may replace this one; the driver then wakes this thread.
      const int lane_fd = lane_->event_fd();
      lock.release();
      release_lane();
      lane_sleep_.on_descriptor(lane_fd, until);
      lock = std::unique_lock<LightMutex>{mutex_};
      mutex_.assert_held();
      lane_->drain_events();
      // Other threads may sleep on the same descriptor, and wait for later completions.
      if (!broken()) (void)lane_->arm();
    }
    waiters_.give_descriptor_back();
  } else {
    sleep_until_woken(lock, until);
  }
  take_inbox();
  progress();
}

/// As sleep(), while the driver has no lane: until it has the next one, or has ended for good.
void QueuedLaneDriver::sleep_while_broken(std::unique_lock<LightMutex>& lock,
                                          Deadline until) noexcept {
  sleep_until_woken(lock, until);
  take_inbox();
  progress();
}

/// Releases the lane to sleep, and takes it again.
void QueuedLaneDriver::sleep_until_woken(std::unique_lock<LightMutex>& lock,
                                         Deadline until) noexcept {
  const std::uint64_t wakes_before = waiters_.begin_wait();
  lock.release();
  release_lane();
  lane_sleep_.on_condition(wakes_before, until);
  lock = std::unique_lock<LightMutex>{mutex_};
  mutex_.assert_held();
  waiters_.end_wait();
}

}  // namespace remora::detail
