#include "client/lane_driver.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>
#include <poll.h>
#include <thread>
#include <utility>

namespace remora::detail {

using transport::LaneCompletion;
using transport::Opcode;
using transport::WireExtent;
using transport::WorkRequest;

namespace {

/// How long a broken lane may take to flush before it is closed under the requests that are left.
constexpr std::chrono::milliseconds kFlushTimeout{500};
/// A sleeping caller looks at the world at least this often.
constexpr std::chrono::milliseconds kSleepMost{100};
/// Bytes that a lane which copies in the caller's thread moves before it looks at the clock and at
/// those who wait for it: some milliseconds.
constexpr std::uint64_t kSynchronousChainBytes = std::uint64_t{32} << 20U;

/// Tells the core that this is a waiting loop.
void relax() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

bool refused_by_peer(CompletionStatus status) noexcept {
  return status == CompletionStatus::kRemoteAccessError ||
         status == CompletionStatus::kRemoteInvalidRequest;
}

bool local_fault(CompletionStatus status) noexcept {
  return status == CompletionStatus::kLocalLengthError ||
         status == CompletionStatus::kLocalProtectionError ||
         status == CompletionStatus::kLocalAccessError ||
         status == CompletionStatus::kLocalQpOperationError;
}

const WireExtent& extent_of(std::span<const WireExtent> extents, std::uint64_t offset) noexcept {
  if (extents.size() == 1) return extents.front();
  const auto after = std::upper_bound(
      extents.begin(), extents.end(), offset,
      [](std::uint64_t at, const WireExtent& extent) { return at < extent.start_bytes; });
  return *std::prev(after);
}

std::uint64_t nanoseconds(Clock::duration duration) noexcept {
  return static_cast<std::uint64_t>(std::max<std::int64_t>(
      0, std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count()));
}

}  // namespace

LaneDriver::LaneDriver(std::unique_ptr<transport::Lane> lane, Options options,
                       ClientMetrics metrics, BrokenHandler on_broken)
    : lane_{std::move(lane)},
      options_{std::move(options)},
      metrics_{std::move(metrics)},
      on_broken_{std::move(on_broken)},
      ring_(std::bit_ceil(lane_->limits().depth)),
      mask_{ring_.size() - 1},
      chain_(lane_->limits().depth),
      atomic_results_{lane_->atomic_results()},
      synchronous_{lane_->event_fd() < 0} {
  metrics_.lane_opened(lane_->completion_capacity());
}

LaneDriver::~LaneDriver() {
  fail(Reason::kNone);
  metrics_.lane_closed(lane_->completion_capacity());
}

void LaneDriver::submit(OperationRecord* first) noexcept {
  std::unique_lock lock{mutex_};
  submit_locked(first);
  tell_if_broken(lock);
}

void LaneDriver::submit_locked(OperationRecord* first) noexcept {
  if (first == nullptr) return;
  if (backlog_last_ == nullptr)
    backlog_first_ = first;
  else
    backlog_last_->next = first;
  OperationRecord* last = first;
  while (last->next != nullptr) last = last->next;
  backlog_last_ = last;
  if (broken())
    fail_backlog(visit());
  else
    pump();
}

void LaneDriver::wait(CompletionSink& sink, std::size_t at_least,
                      const std::function<Deadline()>& earliest_deadline) noexcept {
  std::unique_lock lock{mutex_};
  progress();
  // Also for a caller that only ever polls.
  if (retired_sequence_ != next_sequence_ || backlog_first_ != nullptr)
    if (const Clock::time_point now = Clock::now(); now >= earliest_deadline()) expire(now);
  if (sink.count < at_least) {
    const Clock::time_point began = Clock::now();
    Deadline deadline = earliest_deadline();
    ++waiters_;
    while (sink.count < at_least) {
      const Clock::time_point now = Clock::now();
      if (now >= deadline) {
        expire(now);
        deadline = earliest_deadline();
        // The same deadline again: what expired was broken off and completes below.
        if (deadline <= now) deadline = now + kSleepMost;
      } else if (synchronous_) {
        // There is work left in the backlog; others get their turn, and a look at the clock.
        lock.unlock();
        std::this_thread::yield();
        lock.lock();
      } else if (now - began < options_.spin) {
        lock.unlock();
        relax();
        lock.lock();
      } else {
        sleep(lock, std::min(deadline, now + kSleepMost));
      }
      progress();
    }
    --waiters_;
  }
  tell_if_broken(lock);
}

OperationRecord* LaneDriver::take(CompletionSink& sink) noexcept {
  const std::lock_guard lock{mutex_};
  OperationRecord* const first = sink.first;
  sink = {};
  return first;
}

void LaneDriver::fail(Reason reason) noexcept {
  std::unique_lock lock{mutex_};
  break_lane(reason);
  tell_if_broken(lock);
}

void LaneDriver::tell_if_broken(std::unique_lock<std::mutex>& lock) noexcept {
  if (!broken() || broken_told_) return;
  broken_told_ = true;
  lock.unlock();
  if (on_broken_) on_broken_();
}

void LaneDriver::progress() noexcept {
  poll_completions();
  pump();
}

/// Turns the backlog into chains as far as there is room.
void LaneDriver::pump() noexcept {
  while (backlog_first_ != nullptr && !broken()) {
    std::size_t room = lane_->limits().depth - (next_sequence_ - retired_sequence_);
    chain_length_ = 0;
    chain_bytes_ = 0;
    bool stuck = false;
    while (backlog_first_ != nullptr && room > chain_length_ && !stuck) {
      OperationRecord& operation = *backlog_first_;
      // Read before planning: posted operations may complete and be gone.
      OperationRecord* const next = operation.next;
      stuck = !plan(operation, room - chain_length_);
      if (stuck) break;
      backlog_first_ = next;
      if (next == nullptr) backlog_last_ = nullptr;
    }
    if (chain_length_ == 0) return;
    post_chain();
    if (!synchronous_) return;
    // Done already. What is left of a long backlog follows in wait(), which looks at deadlines in
    // between; small chains cost nothing to go on with.
    if (!poll_completions() || chain_bytes_ >= kSynchronousChainBytes) return;
  }
}

/// Adds requests for the rest of `operation` to the chain. False when it did not fit whole.
bool LaneDriver::plan(OperationRecord& operation, std::size_t room) noexcept {
  if (!operation.outcome.ok) {  // failed in part: nothing more of it is sent
    if (operation.requests_in_flight == 0) finish(operation, visit());
    return true;
  }
  if (is_atomic(operation.opcode)) return plan_atomic(operation);
  const std::uint64_t most = lane_->limits().transfer_bytes_max;
  while (operation.planned_bytes < operation.length_bytes) {
    if (room-- == 0 || (synchronous_ && chain_bytes_ >= kSynchronousChainBytes)) return false;
    const std::uint64_t at = operation.offset_bytes + operation.planned_bytes;
    const WireExtent& extent = extent_of(operation.extents, at);
    const std::uint64_t into = at - extent.start_bytes;
    const std::uint64_t length = std::min(
        {operation.length_bytes - operation.planned_bytes, extent.length_bytes - into, most});
    WorkRequest& request = chain_[chain_length_];
    Posted& posted = ring_[(next_sequence_ + chain_length_) & mask_];
    request = {.remote_address = extent.remote_address + into,
               .local = operation.local + operation.planned_bytes,
               .length_bytes = static_cast<std::uint32_t>(length),
               .remote_key = extent.remote_key,
               .opcode = operation.opcode};
    posted = {.operation = &operation};
    if (!use_local(operation, request, posted)) return false;
    posted.length_bytes = request.length_bytes;
    operation.planned_bytes += request.length_bytes;
    chain_bytes_ += request.length_bytes;
    ++operation.requests_in_flight;
    ++chain_length_;
  }
  return true;
}

bool LaneDriver::plan_atomic(OperationRecord& operation) noexcept {
  const WireExtent& extent = extent_of(operation.extents, operation.offset_bytes);
  chain_[chain_length_] = {
      .remote_address = extent.remote_address + (operation.offset_bytes - extent.start_bytes),
      .compare_or_add = operation.compare_or_add,
      .swap = operation.swap,
      .length_bytes = sizeof(std::uint64_t),
      .remote_key = extent.remote_key,
      .opcode = operation.opcode};
  ring_[(next_sequence_ + chain_length_) & mask_] = {.operation = &operation,
                                                     .length_bytes = sizeof(std::uint64_t)};
  operation.planned_bytes = operation.length_bytes;
  ++operation.requests_in_flight;
  ++chain_length_;
  return true;
}

/// Gives the request a local key: the memory's own, none for inline data, or a bounce slot's.
bool LaneDriver::use_local(OperationRecord& operation, WorkRequest& request,
                           Posted& posted) noexcept {
  if (!options_.needs_keys) return true;
  if (operation.memory != nullptr) {
    request.local_key = operation.memory->key(options_.domain_index);
    return true;
  }
  const bool write = operation.opcode == Opcode::kWrite;
  if (write && request.length_bytes <= lane_->limits().inline_bytes_max) return true;
  const std::uint32_t slot = options_.bounce->take();
  if (slot == SlotStore::kNone) return false;
  const std::span<std::byte> bytes = options_.bounce->slot(slot);
  request.length_bytes =
      static_cast<std::uint32_t>(std::min<std::size_t>(request.length_bytes, bytes.size()));
  if (write)
    std::memcpy(bytes.data(), request.local, request.length_bytes);
  else
    posted.user = request.local;
  posted.bounce_slot = slot;
  request.local = bytes.data();
  request.local_key = options_.bounce->memory()->key(options_.domain_index);
  return true;
}

void LaneDriver::post_chain() noexcept {
  const std::span<const WorkRequest> chain{chain_.data(), chain_length_};
  const std::uint64_t first = next_sequence_;
  const transport::PostOutcome outcome = lane_->post(chain, first);
  next_sequence_ += outcome.taken;
  for (std::size_t i = 0; i < outcome.taken; ++i)
    ring_[(first + i) & mask_].operation->any_posted = true;
  metrics_.doorbell(outcome.taken, next_sequence_ - retired_sequence_);
  if (outcome.status) return;
  // A lane that refuses a request is of no use any more. What it did not take never left.
  broken_reason_ = Reason::kLaneBroken;
  const Visit now = visit();
  for (std::size_t i = outcome.taken; i < chain_length_; ++i) drop(ring_[(first + i) & mask_], now);
  break_lane(Reason::kLaneBroken);
}

/// Takes back a request that the lane did not take.
void LaneDriver::drop(Posted& posted, const Visit& visit) noexcept {
  OperationRecord& operation = *posted.operation;
  --operation.requests_in_flight;
  if (operation.outcome.ok) operation.outcome = lost(operation, visit.now);
  if (posted.bounce_slot != SlotStore::kNone) options_.bounce->give_back(posted.bounce_slot);
  posted = {};
  if (operation.requests_in_flight == 0 && backlog_first_ != &operation) finish(operation, visit);
}

/// True when anything completed.
bool LaneDriver::poll_completions() noexcept {
  std::array<LaneCompletion, 64> found;
  std::size_t total = 0;
  bool failed = false;
  std::optional<Visit> visit;
  while (retired_sequence_ != next_sequence_) {
    const std::size_t count = lane_->poll(found);
    if (count != 0 && !visit) visit = this->visit();
    for (std::size_t i = 0; i < count; ++i) {
      retire_through(found[i], *visit);
      failed = failed || found[i].status != CompletionStatus::kSuccess;
    }
    total += count;
    if (count < found.size()) break;
  }
  if (total == 0) return false;
  metrics_.polled(visit->recorder, total, next_sequence_ - retired_sequence_);
  if (failed) break_lane(Reason::kLaneBroken);
  if (waiters_ > 1) others_.notify_all();
  return true;
}

void LaneDriver::retire_through(const LaneCompletion& completion, const Visit& visit) noexcept {
  // Requests complete in order and one that fails always says so itself: those passed over are ok.
  while (retired_sequence_ < completion.sequence)
    retire(retired_sequence_, CompletionStatus::kSuccess, 0, visit);
  if (retired_sequence_ == completion.sequence)
    retire(completion.sequence, completion.status, completion.vendor_error, visit);
}

void LaneDriver::retire(std::uint64_t sequence, CompletionStatus status, std::uint32_t vendor_error,
                        const Visit& visit) noexcept {
  Posted& posted = ring_[sequence & mask_];
  OperationRecord& operation = *posted.operation;
  ++retired_sequence_;
  --operation.requests_in_flight;
  if (status == CompletionStatus::kSuccess) {
    if (posted.user != nullptr)
      std::memcpy(posted.user, options_.bounce->slot(posted.bounce_slot).data(),
                  posted.length_bytes);
    if (is_atomic(operation.opcode))
      operation.old_value = atomic_results_[sequence & (atomic_results_.size() - 1)];
  } else if (operation.outcome.ok) {
    if (refused_by_peer(status))
      operation.outcome = Outcome::failure(Code::kAccessRefused);
    else if (local_fault(status))
      operation.outcome = Outcome::failure(Code::kProvider);
    else
      operation.outcome = lost(operation, visit.now);
    operation.outcome.status = status;
    operation.outcome.vendor_error = vendor_error;
  }
  if (posted.bounce_slot != SlotStore::kNone) options_.bounce->give_back(posted.bounce_slot);
  posted = {};
  const bool planned = operation.planned_bytes == operation.length_bytes || !operation.outcome.ok;
  // An operation that is still first in the backlog is finished by pump() or fail_backlog().
  if (operation.requests_in_flight == 0 && planned && backlog_first_ != &operation)
    finish(operation, visit);
}

/// How an operation ends that was with a lane that broke.
Outcome LaneDriver::lost(const OperationRecord& operation, Clock::time_point now) const noexcept {
  const bool expired = now >= operation.deadline;
  if (operation.opcode == Opcode::kRead)
    return expired ? Outcome::failure(Code::kTimedOut)
                   : Outcome::failure(Code::kConnectionLost, broken_reason_);
  if (operation.any_posted) return Outcome::failure(Code::kIndeterminate, broken_reason_);
  return expired ? Outcome::failure(Code::kTimedOut)
                 : Outcome::failure(Code::kConnectionLost, broken_reason_);
}

void LaneDriver::finish(OperationRecord& operation, const Visit& visit) noexcept {
  metrics_.operation_ended(visit.recorder, operation, nanoseconds(visit.now - operation.submitted));
  operation.next = nullptr;
  CompletionSink& sink = *operation.sink;
  if (sink.last == nullptr)
    sink.first = &operation;
  else
    sink.last->next = &operation;
  sink.last = &operation;
  ++sink.count;
}

/// Ends what has run out of time: unposted operations by themselves, posted ones with their lane.
void LaneDriver::expire(Clock::time_point now) noexcept {
  for (std::uint64_t s = retired_sequence_; s != next_sequence_; ++s)
    if (ring_[s & mask_].operation->deadline <= now) {
      break_lane(Reason::kLaneBroken);
      return;
    }
  OperationRecord** link = &backlog_first_;
  OperationRecord* previous = nullptr;
  while (*link != nullptr) {
    OperationRecord& operation = **link;
    if (operation.deadline > now) {
      previous = &operation;
      link = &operation.next;
      continue;
    }
    *link = operation.next;
    if (backlog_last_ == &operation) backlog_last_ = previous;
    // Posted in part and all of that done: a write's effect is there in part.
    operation.outcome = lost(operation, now);
    finish(operation, visit());
  }
}

void LaneDriver::break_lane(Reason reason) noexcept {
  if (broken()) return;
  broken_reason_ = reason;
  broken_.store(true, std::memory_order_release);
  if (reason != Reason::kNone) metrics_.lane_broken();
  lane_->break_off();
  const Deadline flushed_by = Clock::now() + kFlushTimeout;
  std::array<LaneCompletion, 64> found;
  while (retired_sequence_ != next_sequence_ && Clock::now() < flushed_by && !synchronous_) {
    const std::size_t count = lane_->poll(found);
    for (std::size_t i = 0; i < count; ++i) retire_through(found[i], visit());
    if (count == 0) relax();
  }
  // From here on nothing touches a buffer, so what has not completed may end.
  lane_->close();
  while (retired_sequence_ != next_sequence_)
    retire(retired_sequence_, CompletionStatus::kFlushed, 0, visit());
  fail_backlog(visit());
  others_.notify_all();
}

void LaneDriver::fail_backlog(const Visit& visit) noexcept {
  while (backlog_first_ != nullptr) {
    OperationRecord& operation = *backlog_first_;
    backlog_first_ = operation.next;
    if (operation.outcome.ok) operation.outcome = lost(operation, visit.now);
    finish(operation, visit);
  }
  backlog_last_ = nullptr;
}

void LaneDriver::sleep(std::unique_lock<std::mutex>& lock, Deadline until) noexcept {
  if (sleeper_ || broken()) {
    others_.wait_until(lock, until);
    return;
  }
  sleeper_ = true;
  if (lane_->arm() && !poll_completions()) {
    lock.unlock();
    const auto left = std::chrono::nanoseconds{nanoseconds(until - Clock::now())};
    const timespec timeout{
        .tv_sec = static_cast<time_t>(left.count() / 1'000'000'000),
        .tv_nsec = static_cast<long>(left.count() % 1'000'000'000)};  // NOLINT(google-runtime-int)
    pollfd event{.fd = lane_->event_fd(), .events = POLLIN, .revents = 0};
    ::ppoll(&event, 1, &timeout, nullptr);
    lock.lock();
    lane_->drain_events();
  }
  sleeper_ = false;
  // Somebody else takes over the descriptor if this caller has what it waited for.
  if (waiters_ > 1) others_.notify_all();
}

}  // namespace remora::detail
