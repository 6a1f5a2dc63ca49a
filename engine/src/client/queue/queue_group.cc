/// Groups: many pairs that a queue takes as one operation. Each pair has a place in the queue and
/// is handled like any operation. Its end is counted in the place of the first pair, the head. A
/// queue without groups does not use these functions.

#include <algorithm>
#include <utility>

#include <remora/assert.h>
#include <remora/engine/queue.h>

#include "client/datapath/many_pairs.h"
#include "client/queue/queue_core.h"
#include "client/session/session_core.h"

namespace remora::detail {

bool count_end_of_pair(QueueEntry& entry) noexcept {
  QueueEntry& head = *std::exchange(entry.group.head, nullptr);
  QueueGroup& group = head.group;
  const Outcome& outcome = entry.outcome;
  if (outcome.ok) {
    if (entry.group.before != nullptr) *entry.group.before = entry.old_value;
  } else {
    if (entry.group.outcome != nullptr)
      *entry.group.outcome = {
          .ok = false, .code = outcome.code, .reason = outcome.reason, .status = outcome.status};
    if (group.failed != head.ticket || entry.group.index < group.failed_index) {
      group.failed = head.ticket;
      group.failed_index = entry.group.index;
      group.failed_outcome = outcome;
      group.failed_offset_bytes = entry.offset_bytes;
      group.failed_length_bytes = entry.length_bytes;
    }
  }
  REMORA_ASSERT_HOT(group.left_count > 0, "a pair of a group ends once");
  if (--group.left_count != 0) return false;
  if (group.failed == head.ticket) {
    head.outcome = group.failed_outcome;
    head.offset_bytes = group.failed_offset_bytes;
    head.length_bytes = group.failed_length_bytes;
  }
  return true;
}

Error error_in_group(const Error& error, const RegionGrant& region,
                     const QueueEntry& entry) noexcept {
  if (entry.group.failed != entry.ticket) return error;
  return of_pair(error, region.info().name, entry.group.failed_index);
}

template <typename Pair>
Ticket QueueCore::take_group(std::span<Pair> pairs, std::span<ManyOutcome> each,
                             std::uint64_t tag) noexcept {
  if (pairs.empty() || pairs.size() > room_.left || (!each.empty() && each.size() != pairs.size()))
    return {};
  std::fill(each.begin(), each.end(), ManyOutcome{});
  QueueEntry& head = *entry_of(free_);
  head.group = {.left_count = static_cast<std::uint32_t>(pairs.size())};
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    QueueEntry& entry = *entry_of(free_);
    --room_.left;
    entry.tag = tag;
    entry.ticket = entry.ticket.next();
    fill_pair(entry, pairs[i]);
    entry.name_memory(memory_of(pairs[i]));
    entry.group.head = &head;
    entry.group.before = before_of(pairs[i]);
    entry.group.outcome = each.empty() ? nullptr : &each[i];
    entry.group.index = static_cast<std::uint32_t>(i);
    append(entry, region_->check_on<kOpcodeOf<Pair>>(entry, lane_));
  }
  ++group_count_;
  return head.ticket;
}

// For coroutines, too:
template Ticket QueueCore::take_group(std::span<const ReadPair>, std::span<ManyOutcome>,
                                      std::uint64_t) noexcept;
template Ticket QueueCore::take_group(std::span<const WritePair>, std::span<ManyOutcome>,
                                      std::uint64_t) noexcept;
template Ticket QueueCore::take_group(std::span<FetchAddPair>, std::span<ManyOutcome>,
                                      std::uint64_t) noexcept;
template Ticket QueueCore::take_group(std::span<CompareSwapPair>, std::span<ManyOutcome>,
                                      std::uint64_t) noexcept;

/// As hand_out(), for operations that may include pairs.
void QueueCore::hand_out_grouped(OperationRecord& first, std::size_t count) noexcept {
  OperationRecord* at = &first;
  for (; count != 0; --count) {
    QueueEntry& entry = *entry_of(std::exchange(at, at->next));
    entry.deadline = Deadline::max();  // no longer in flight
    entry.name_memory(nullptr);
    if (entry.group.head != nullptr)
      end_of_pair(entry);
    else
      make_ready(entry, entry.outcome.ok);
  }
}

void QueueCore::make_ready(QueueEntry& entry, bool ok) noexcept {
  REMORA_ASSERT_HOT(ready_count_ < room_.depth && room_.left < room_.depth,
                    "an operation that was taken is handed out once");
  if (ready_count_ != 0) ready_[ready_count_ - 1].entry_->next = &entry;
  Completion& completion = ready_[ready_count_++];
  completion.entry_ = &entry;
  completion.ok_ = ok;
  ++room_.left;
}

/// Called when a pair has ended: frees its place, unless it is the head's. The head is ready when
/// all pairs of the group have ended.
void QueueCore::end_of_pair(QueueEntry& entry) noexcept {
  QueueEntry& head = *entry.group.head;
  const bool last = count_end_of_pair(entry);
  if (&entry != &head) {
    entry.next = free_;
    free_ = &entry;
    (filled_.count == 0 ? filled_.first : filled_.last->next) = free_;
    ++room_.left;
  }
  if (!last) return;
  REMORA_ASSERT(group_count_ > 0, "a group ends once");
  --group_count_;
  make_ready(head, head.outcome.ok);
}

/// Waits until `at_least` completions are ready, or no operation is left that could end. The number
/// of operations is no measure here, since a group of many has one completion.
void QueueCore::wait_for_groups(std::size_t at_least) noexcept {
  const auto earliest = [this] { return earliest_deadline(); };
  if (in_flight_ > 0) lane_.wait(sink_, 0, DeadlineSource{earliest});
  while (true) {
    collect_ended();
    hand_over_held();
    if (ready_count_ >= at_least || in_flight_ + held_.count + refused_.count == 0) return;
    if (in_flight_ > 0 && refused_.empty()) lane_.wait(sink_, 1, DeadlineSource{earliest});
  }
}

}  // namespace remora::detail

namespace remora {

Ticket Queue::read_many(std::span<const ReadPair> pairs, std::span<ManyOutcome> each,
                        std::uint64_t tag) noexcept {
  if (core_ == nullptr) [[unlikely]]
    return {};
  return core_->take_group(pairs, each, tag);
}
Ticket Queue::write_many(std::span<const WritePair> pairs, std::span<ManyOutcome> each,
                         std::uint64_t tag) noexcept {
  if (core_ == nullptr) [[unlikely]]
    return {};
  return core_->take_group(pairs, each, tag);
}
Ticket Queue::fetch_add_many(std::span<FetchAddPair> pairs, std::span<ManyOutcome> each,
                             std::uint64_t tag) noexcept {
  if (core_ == nullptr) [[unlikely]]
    return {};
  return core_->take_group(pairs, each, tag);
}
Ticket Queue::compare_swap_many(std::span<CompareSwapPair> pairs, std::span<ManyOutcome> each,
                                std::uint64_t tag) noexcept {
  if (core_ == nullptr) [[unlikely]]
    return {};
  return core_->take_group(pairs, each, tag);
}

}  // namespace remora
