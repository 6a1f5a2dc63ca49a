/// Groups: many pairs that a callback queue takes as one operation. Each pair has a place in the
/// queue and is handled like any operation. The poller counts its end in the place of the first
/// pair, the head, which has the callback.

#include <algorithm>

#include <remora/assert.h>
#include <remora/engine/callback_queue.h>

#include "base/closed.h"
#include "client/datapath/client_metrics.h"
#include "client/datapath/end_tally.h"
#include "client/datapath/many_pairs.h"
#include "client/queue/callback_core.h"
#include "client/services/poller.h"
#include "client/session/session_core.h"

namespace remora::detail {

/// Reserves room for `count` operations, or for none of them.
Status CallbackCore::acquire_places(std::size_t count) noexcept {
  if (count > depth_)
    return region_->named(Error{Code::kLimitExceeded, "callback_queue"}.with_limit(count, depth_));
  std::uint64_t before = in_flight_.load(std::memory_order_relaxed);
  do {
    if ((before & kClosing) != 0) return Error{Code::kClosed, "callback_queue"};
    const std::uint64_t wanted = (before & kCount) + count;
    if (wanted > depth_)
      return region_->named(Error{Code::kWouldBlock, "callback_queue"}.with_limit(wanted, depth_));
  } while (!in_flight_.compare_exchange_weak(before, before + count, std::memory_order_acq_rel,
                                             std::memory_order_relaxed));
  // See acquire().
  if ((before & kCount) == 0 && !immediate_) poller_.notifier().notify();
  return {};
}

template <typename Pair>
Status CallbackCore::take_group(std::span<Pair> pairs, std::span<ManyOutcome> each,
                                GivenCallback given, std::uint64_t tag, Deadline until) noexcept {
  if (pairs.empty())
    return Error{Code::kInvalidArgument, "callback_queue"}.with_subject("no pairs");
  if (!each.empty() && each.size() != pairs.size())
    return Error{Code::kInvalidArgument, "callback_queue"}
        .with_subject("each: one outcome a pair")
        .with_limit(each.size(), pairs.size());
  if (const Status room = acquire_places(pairs.size()); !room) return room;
  std::fill(each.begin(), each.end(), ManyOutcome{});
  const Clock::time_point now = clock_now();
  const Deadline deadline = std::min(deadline_after(now, deadline_), until);
  if (until != Deadline::max()) lower_earliest(deadline.time_since_epoch().count());
  CallbackEntry* head = nullptr;
  OperationList sound;
  OperationList refused;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const std::uint32_t place = free_.take();
    REMORA_ASSERT_HOT(place < table_.size(), "a queue with room has a free place");
    CallbackEntry& entry = table_[place];
    entry.ticket = entry.ticket.next();
    if (head == nullptr) {
      head = &entry;
      entry.group = {.left_count = static_cast<std::uint32_t>(pairs.size())};
      entry.tag = tag;
      given.type->move(entry.callable.data(), given.callable);
      entry.type = given.type;
    }
    fill_pair(entry, pairs[i]);
    entry.name_memory(memory_of(pairs[i]));
    entry.group.head = head;
    entry.group.before = before_of(pairs[i]);
    entry.group.outcome = each.empty() ? nullptr : &each[i];
    entry.group.index = static_cast<std::uint32_t>(i);
    entry.submitted = now;
    entry.deadline = deadline;
    const bool may_go =
        region_->check_on<kOpcodeOf<Pair>>(entry, lane()) && (entry.whole || acquire_lease(entry));
    if (may_go) {
      entry.follows = !sound.empty() && may_follow(*sound.last, entry);
      entry.due.store(deadline.time_since_epoch().count(), std::memory_order_relaxed);
    }
    (may_go ? sound : refused).append(entry);
  }
  // Pinning pages for one pair may take longer than a revocation waits for the other pairs.
  if (const Reason why = region_->revoked(); why != Reason::kNone)
    refuse_all(sound, refused, Outcome::failure(Code::kAccessRefused, why));
  else if (clock_now() >= deadline)
    refuse_all(sound, refused, Outcome::failure(Code::kTimedOut, Reason::kExpired));
  hand_over_group(sound, refused);
  return {};
}

/// Moves pairs that have passed their checks and are not submitted to `refused`.
void CallbackCore::refuse_all(OperationList& sound, OperationList& refused,
                              const Outcome& outcome) noexcept {
  EndTally tally{region_->session().metrics()};
  while (!sound.empty()) {
    OperationRecord& operation = sound.take_first();
    if (!operation.whole) lane().release_lease(operation);
    operation.outcome = outcome;
    tally.add(operation);
    refused.append(operation);
  }
}

/// From here on the poller may end the pairs. It also ends the refused ones, since only one thread
/// may count the ends of a group.
void CallbackCore::hand_over_group(OperationList sound, OperationList refused) noexcept {
  while (!refused.empty()) push_done(static_cast<CallbackEntry&>(refused.take_first()));
  if (!immediate_) {
    if (!sound.empty()) lane().submit(sound);
    return;
  }
  while (!sound.empty()) carry_out(static_cast<CallbackEntry&>(sound.take_first()));
}

/// Called when a pair has ended: frees its place, unless it is the head's. When all pairs have
/// ended, calls the head's callback.
void CallbackCore::end_of_pair(CallbackEntry& entry) noexcept {
  auto& head = static_cast<CallbackEntry&>(*entry.group.head);
  const bool last = count_end_of_pair(entry);
  if (&entry != &head) {
    give_back(entry);
    in_flight_.fetch_sub(1, std::memory_order_acq_rel);
  }
  if (last) end(head);
}

// For coroutines, too:
template Status CallbackCore::take_group(std::span<const ReadPair>, std::span<ManyOutcome>,
                                         GivenCallback, std::uint64_t, Deadline) noexcept;
template Status CallbackCore::take_group(std::span<const WritePair>, std::span<ManyOutcome>,
                                         GivenCallback, std::uint64_t, Deadline) noexcept;
template Status CallbackCore::take_group(std::span<FetchAddPair>, std::span<ManyOutcome>,
                                         GivenCallback, std::uint64_t, Deadline) noexcept;
template Status CallbackCore::take_group(std::span<CompareSwapPair>, std::span<ManyOutcome>,
                                         GivenCallback, std::uint64_t, Deadline) noexcept;

}  // namespace remora::detail

namespace remora {

using detail::closed;

Status CallbackQueue::read_pairs(std::span<const ReadPair> pairs, Given given,
                                 std::span<ManyOutcome> each, std::uint64_t tag) noexcept {
  if (core_ == nullptr) return closed("read_many", core_);
  return core_->take_group(pairs, each, given, tag);
}
Status CallbackQueue::write_pairs(std::span<const WritePair> pairs, Given given,
                                  std::span<ManyOutcome> each, std::uint64_t tag) noexcept {
  if (core_ == nullptr) return closed("write_many", core_);
  return core_->take_group(pairs, each, given, tag);
}
Status CallbackQueue::add_pairs(std::span<FetchAddPair> pairs, Given given,
                                std::span<ManyOutcome> each, std::uint64_t tag) noexcept {
  if (core_ == nullptr) return closed("fetch_add_many", core_);
  return core_->take_group(pairs, each, given, tag);
}
Status CallbackQueue::swap_pairs(std::span<CompareSwapPair> pairs, Given given,
                                 std::span<ManyOutcome> each, std::uint64_t tag) noexcept {
  if (core_ == nullptr) return closed("compare_swap_many", core_);
  return core_->take_group(pairs, each, given, tag);
}

}  // namespace remora
