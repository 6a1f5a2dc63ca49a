/// How the lane of a QueuedLaneDriver breaks and ends, and how another lane follows it.
///
/// break_lane() stops posting. end_lane() waits until the device no longer accesses the buffers of
/// the posted requests, and ends their operations. A caller that may wait calls end_lane() when it
/// releases the lane. For other callers a thread of the session does: end_broken_lane(). replace()
/// and go_on() give the driver its next lane.

#include <algorithm>
#include <utility>

#include <remora/assert.h>

#include "base/log.h"
#include "base/spin_pause.h"
#include "client/datapath/queued_lane_driver.h"

namespace remora::detail {

namespace {
/// Time for a broken lane to flush. After it the driver closes the lane, with the requests that are
/// left. Lanes that are moved to the error state together flush at the same time.
constexpr std::chrono::milliseconds kFlushTimeout{200};
}  // namespace

/// Begins the time for the flush. A thread that waits for the flush later uses the same limit.
void QueuedLaneDriver::move_to_error() noexcept {
  Clock::rep none = 0;
  flush_by_.compare_exchange_strong(none,
                                    (Clock::now() + kFlushTimeout).time_since_epoch().count());
  lane_->move_to_error();
}

/// From here on the lane posts nothing. The thread that releases it ends it, or has it ended.
void QueuedLaneDriver::break_lane(Reason reason) noexcept {
  if (broken()) return;
  ending_.store(true, std::memory_order_release);
  end_.reason = reason;
  broken_.store(true, std::memory_order_release);
  if (reason != Reason::kNone) metrics_.lane_broken();
  move_to_error();
}

/// The completion is of what is not posted: the lane ends. Nothing is concluded from it, so that
/// requests before it end by completions of their own.
[[gnu::cold, gnu::noinline]] void QueuedLaneDriver::distrust(
    const transport::LaneCompletion& completion) noexcept {
  if (broken()) return;
  log::warn({"lane.wrong_completion", "request"},
            "lane: request {} has completed, which is not posted; the lane ends",
            completion.sequence);
  break_lane(Reason::kLaneBroken);
}

/// Ends a broken lane. Waits for the flush; if the device does not flush in time, waits until the
/// device has destroyed the queues.
void QueuedLaneDriver::end_lane() noexcept {
  REMORA_ASSERT(broken(), "only a lane that has broken ends");
  end_.for_good = !options_.revivable;
  // The flush makes events, for which a thread that watches the descriptor would wake.
  lane_->drain_events();
  if (events_) events_->remove(lane_->event_fd());
  take_flushed(Deadline{Clock::duration{flush_by_.load()}});
  // After close() the device accesses no buffer, so operations that have not completed may end. A
  // device can be slow to close a lane: if all requests have completed, no caller waits for it.
  wait_for_device([this, all_flushed = retired_sequence_ == next_sequence_] {
    all_flushed ? lane_->close_later() : lane_->close();
  });
  EndTally tally{metrics_, cells_.recorder()};
  while (retired_sequence_ != next_sequence_)
    retire_failed(retired_sequence_, CompletionStatus::kFlushed, 0, true, tally);
  if (end_.for_good)
    fail_backlog(tally);
  else
    finish_begun(tally);
  ending_.store(false, std::memory_order_release);
  waiters_.wake();
}

void QueuedLaneDriver::interrupt(Reason reason) noexcept {
  mutex_.lock();
  take_inbox();
  end_hold();
  break_lane(reason);
  if (ending()) end_lane();
  // A lease would keep a device that has failed.
  if (options_.cache != nullptr)
    backlog_.extract(
        [&](OperationRecord& operation) {
          mutex_.assert_held();
          if (!operation.whole) release_lost_lease(operation);
          return false;
        },
        [](OperationRecord& /*operation*/) {});
  release_lane();
}

/// Meanwhile the driver counts as broken, so that no thread posts: operations go to the backlog,
/// and their owners sleep until they are woken. No handler is called, since nothing has failed.
bool QueuedLaneDriver::hold(Deadline until) noexcept {
  mutex_.lock();
  // As at the end of a lane: meanwhile progress_and_arm() and cancel() do not wait for the lane.
  if (!broken()) ending_.store(true, std::memory_order_release);
  while (!broken() && retired_sequence_ != next_sequence_ && Clock::now() < until)
    if (!poll_completions()) wait_for_device(relax);
  const bool held = !broken() && retired_sequence_ == next_sequence_;
  if (!broken()) {
    ending_.store(false, std::memory_order_release);
    if (!held) {
      // Arms the lane for callers in event loops, whose progress_and_arm() returned at once; then
      // polls, as usual after arming.
      (void)lane_->arm();
      (void)poll_completions();
    }
  }
  if (held) {
    end_.held = end_.told = true;
    broken_.store(true, std::memory_order_release);
  }
  release_lane(Release::kAtOnce);
  return held;
}

void QueuedLaneDriver::end_hold() noexcept {
  if (!std::exchange(end_.held, false)) return;
  end_.told = false;
  broken_.store(false, std::memory_order_release);
}

void QueuedLaneDriver::release_hold() noexcept {
  mutex_.lock();
  end_hold();
  take_inbox();
  // progress_and_arm() did not arm the lane for callers in event loops.
  if (!broken()) (void)lane_->arm();
  // As in go_on().
  if (!backlog_.empty()) expire_backlog(Clock::now());
  post_backlog();
  waiters_.wake();
  release_lane(Release::kAtOnce);
}

void QueuedLaneDriver::end_broken_lane() noexcept {
  mutex_.lock();
  take_inbox();
  // Also operations whose owner checks no more: see CallbackCore::end_overdue().
  if (!backlog_.empty()) expire_backlog(Clock::now());
  release_lane();
}

bool QueuedLaneDriver::lock_unless(const std::atomic<bool>& gives_up) noexcept {
  if (mutex_.try_lock()) return true;
  const Clock::time_point began = Clock::now();
  do {
    if (gives_up.load(std::memory_order_acquire)) return false;
    spin_pause(Clock::now() - began);
  } while (!mutex_.try_lock());
  return true;
}

/// Releases the lane. Before that, ends a broken lane, or has another thread end it and call the
/// handlers. Notifies the sink to which operations were pushed and, after the release, calls the
/// handlers of a refused operation and of a broken lane.
void QueuedLaneDriver::release_and_tell(Release release) noexcept {
  if (ending() && release == Release::kAtOnce && options_.end_elsewhere) {
    const bool asked = std::exchange(end_.asked, true);
    tell_notifier();
    mutex_.unlock();
    if (!asked && !options_.end_elsewhere(*this)) end_broken_lane();
    return;
  }
  if (ending()) end_lane();
  const bool tell = broken() && !std::exchange(end_.told, true);
  const Refused refused = std::exchange(refused_, {});
  tell_notifier();
  mutex_.unlock();
  // Before on_broken_ interrupts the session, since the server can still answer.
  if (refused.first != nullptr) end_refused(refused);
  if (tell && on_broken_) on_broken_();
}

/// Ends operations that were posted in part. The next lane gets only operations that are whole, or
/// of which nothing was posted.
void QueuedLaneDriver::finish_begun(EndTally& tally) noexcept {
  backlog_.extract(
      [](const OperationRecord& operation) {
        return !operation.whole && (operation.any_posted || !operation.outcome.ok);
      },
      [&](OperationRecord& operation) {
        mutex_.assert_held();
        if (&operation == refused_.first) return;  // end_refused() ends it
        if (operation.outcome.ok)
          operation.outcome = outcome_on_broken_lane(operation, false, tally.now());
        finish(operation, tally);
      });
}

/// For a lane that is broken already: no lane follows, so the operations that wait for one end.
void QueuedLaneDriver::end_for_good(Reason reason) noexcept {
  if (std::exchange(end_.for_good, true)) return;
  end_.reason = reason;
  end_.victims_ended = true;
  EndTally tally{metrics_, cells_.recorder()};
  fail_backlog(tally);
  waiters_.wake();
}

void QueuedLaneDriver::fail_backlog(EndTally& tally) noexcept {
  while (!backlog_.empty()) {
    OperationRecord& operation = backlog_.take_first();
    if (&operation == refused_.first) continue;  // end_refused() ends it
    if (operation.outcome.ok)
      operation.outcome = outcome_on_broken_lane(operation, false, tally.now());
    finish(operation, tally);
  }
}

bool QueuedLaneDriver::replace(std::unique_ptr<transport::Lane> lane) noexcept {
  const std::lock_guard lock{mutex_};
  mutex_.assert_held();
  const transport::Lane::Limits& now = lane->limits();
  // Checked operations fit the old limits, and must fit the new ones. The arrays have room for the
  // depth of the first lane.
  const bool fits = now.transfer_bytes_max >= limits_.transfer_bytes_max &&
                    now.inline_bytes_max >= limits_.inline_bytes_max &&
                    now.writes_zeroes == limits_.writes_zeroes &&
                    (now.initiator_depth != 0) == (limits_.initiator_depth != 0);
  if (!fits || !broken() || ending_ || end_.for_good || !events_->add(lane->event_fd()))
    return false;
  REMORA_ASSERT(retired_sequence_ == next_sequence_,
                "a lane has no requests when another lane follows it");
  metrics_.lane_closed(lane_->completion_capacity());
  const std::uint32_t before = server_device();
  if (const auto rail = this->rail()) metrics_.rail_lane_closed(rail->device);
  lane_ = std::move(lane);
  set_rail(lane_->rail());
  if (const auto rail = this->rail()) metrics_.rail_lane_opened(rail->device);
  // Also if go_on() was not called for the lane before: waiting operations were checked for an
  // older lane.
  end_.atomics_moved = end_.atomics_moved || server_device() != before;
  flush_by_.store(0);
  metrics_.lane_opened(lane_->completion_capacity());
  lane_->count_inline(cells_.recorder(), metrics_.inline_requests());
  limits_.depth = std::min(now.depth, static_cast<std::uint32_t>(chain_.requests.size()));
  depth_.store(limits_.depth, std::memory_order_relaxed);
  limits_.initiator_depth = now.initiator_depth;
  atomic_results_ = lane_->atomic_results();
  next_sequence_ = retired_sequence_ = 0;
  return true;
}

/// The device may have failed and returned since the waiting operations were checked: then their
/// memory has other keys, or none, which ends them.
void QueuedLaneDriver::renew_local_keys() noexcept {
  if (!options_.needs_keys) return;
  EndTally tally{metrics_, cells_.recorder()};
  backlog_.extract(
      [&](OperationRecord& operation) {
        mutex_.assert_held();
        if (!operation.whole) release_lost_lease(operation);
        if (!operation.whole || operation.memory == nullptr ||
            !transport::is_transfer(operation.request.opcode))
          return false;
        operation.request.local_key = operation.memory->key(options_.domain_index);
        return !operation.memory->registered(options_.domain_index);
      },
      [&](OperationRecord& operation) {
        mutex_.assert_held();
        operation.outcome = Outcome::failure(Code::kOutOfMemory);
        finish(operation, tally);
      });
}

/// After that, the bytes of the operation are copied through bounce slots.
void QueuedLaneDriver::release_lost_lease(OperationRecord& operation) noexcept {
  if (!operation.part && operation.lease && options_.cache->lost(operation.lease))
    release_lease(operation);
}

/// Atomics of two devices are not atomic to each other. Atomics that wait since the lane before
/// have not been carried out, and must not be.
void QueuedLaneDriver::refuse_moved_atomics() noexcept {
  if (!std::exchange(end_.atomics_moved, false)) return;
  EndTally tally{metrics_, cells_.recorder()};
  backlog_.extract([](const OperationRecord& each) { return is_atomic(each.request.opcode); },
                   [&](OperationRecord& operation) {
                     mutex_.assert_held();
                     operation.outcome = Outcome::failure(Code::kWrongAtomicDomain);
                     finish(operation, tally);
                   });
}

void QueuedLaneDriver::go_on() noexcept {
  mutex_.lock();
  if (broken() && !ending() && !end_.for_good) {
    take_inbox();
    // Owners of operations that are past their deadlines may free the buffers.
    if (!backlog_.empty()) expire_backlog(Clock::now());
    renew_local_keys();
    refuse_moved_atomics();
    end_.told = end_.victims_ended = end_.asked = false;
    end_.reason = Reason::kNone;
    fault_.store(LaneFault::kNone, std::memory_order_relaxed);
    unanswered_.store(false, std::memory_order_relaxed);
    broken_.store(false, std::memory_order_release);
    breaking_.store(false, std::memory_order_release);
    // progress_and_arm() did not arm the broken lane for callers in event loops.
    (void)lane_->arm();
    {
      EndTally tally{metrics_, cells_.recorder()};
      refuse_waiting(tally);
    }
    post_backlog();
    waiters_.wake();
  }
  release_lane();
}

}  // namespace remora::detail
