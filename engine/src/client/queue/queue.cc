/// The path of each operation through a queue: taken, submitted, waited for, handed out.
/// queue_core.cc has the functions that a queue rarely runs.

#include <algorithm>
#include <span>
#include <utility>

#include <remora/assert.h>
#include <remora/engine/queue.h>
#include <remora/engine/region.h>

#include "base/closed.h"
#include "client/datapath/slot_return.h"
#include "client/queue/queue_core.h"
#include "client/session/session_core.h"

namespace remora::detail {

using transport::Opcode;

/// Call it only while there is room.
[[gnu::always_inline]] inline QueueEntry& QueueCore::acquire(std::uint64_t tag) noexcept {
  REMORA_ASSERT_HOT(free_ != nullptr && room_.left != 0, "a queue with room has a free place");
  QueueEntry& entry = *entry_of(free_);
  --room_.left;
  entry.tag = tag;
  entry.ticket = entry.ticket.next();
  return entry;
}

/// Queues an operation: a sound one to be submitted, another one to be handed out.
Ticket QueueCore::append(QueueEntry& entry, bool sound) noexcept {
  free_ = entry.next;
  const Opcode opcode = entry.request.opcode;
  entry.follows = sound && entry.whole && filled_.run_opcode == opcode;
  filled_.run_opcode = sound && entry.whole && transport::is_transfer(opcode) ? opcode : kNoRun;
  if (sound) [[likely]] {
    if (std::exchange(barrier_, false)) put_barrier_before(&entry);
    filled_.any_split = filled_.any_split || !entry.whole;
    filled_.last = &entry;
    ++filled_.count;
  } else {  // the barrier then is before the next operation
    (filled_.count == 0 ? filled_.first : filled_.last->next) = free_;
    keep_refused(entry);
  }
  return entry.ticket;
}

/// Returns the filled operations as a list, and leaves none filled.
OperationList QueueCore::detach_filled() noexcept {
  OperationList filled;
  if (filled_.count != 0) {
    filled = {.first = filled_.first, .last = filled_.last, .count = filled_.count};
    filled.last->next = nullptr;
  }
  attach_filled({});
  return filled;
}

void QueueCore::attach_filled(OperationList filled) noexcept {
  filled_.count = filled.count;
  filled_.last = filled.last;
  filled_.first = filled.empty() ? free_ : filled.first;
  if (!filled.empty()) filled.last->next = free_;
  filled_.run_opcode = kNoRun;
}

[[gnu::always_inline]] inline void QueueCore::fill(QueueEntry& entry,
                                                   const Transfer& transfer) noexcept {
  entry.request.local = transfer.local;
  entry.request.opcode = transfer.opcode;
  entry.offset_bytes = transfer.offset.bytes;
  entry.length_bytes = transfer.length_bytes;
  entry.name_memory(transfer.memory);
}

[[gnu::always_inline]] inline Ticket QueueCore::take(const Transfer& transfer, Slot* slot,
                                                     std::uint64_t tag) noexcept {
  if (!has_room()) [[unlikely]]
    return {};
  QueueEntry& entry = *entry_of(free_);
  fill(entry, transfer);
  if (barrier_ || !region_->admits(entry)) [[unlikely]]
    return take_after_full_check(slot, tag);
  acquire(tag);
  free_ = entry.next;
  entry.follows = filled_.run_opcode == transfer.opcode;
  filled_.run_opcode = transfer.opcode;
  filled_.last = &entry;
  ++filled_.count;
  if (slot != nullptr) {
    any_slots_ = true;
    SlotReturn::move(*slot, entry.slot);
  }
  return entry.ticket;
}

/// Takes an operation that admits() refused, or behind a barrier. Its place has been filled in.
Ticket QueueCore::take_after_full_check(Slot* slot, std::uint64_t tag) noexcept {
  QueueEntry& entry = acquire(tag);
  if (slot != nullptr) {
    any_slots_ = true;
    entry.slot = std::move(*slot);
  }
  return append(entry, region_->check(entry));
}

Ticket QueueCore::take_transfer(const Transfer& transfer, Slot* slot, std::uint64_t tag) noexcept {
  return take(transfer, slot, tag);
}

Ticket QueueCore::take(const transport::WorkRequest& request, ByteOffset offset,
                       std::uint64_t length_bytes, std::uint64_t tag) noexcept {
  if (!has_room()) return {};
  QueueEntry& entry = acquire(tag);
  entry.request = request;
  entry.offset_bytes = offset.bytes;
  entry.length_bytes = length_bytes;
  entry.name_memory(nullptr);
  return append(entry, region_->check_on(entry, lane_));
}

Ticket QueueCore::take_notify(ByteOffset offset, const Source& from, std::uint32_t notice,
                              std::uint64_t tag) noexcept {
  if (!has_room()) return {};
  QueueEntry& entry = acquire(tag);
  fill(entry, {Opcode::kWrite, offset, const_cast<std::byte*>(from.bytes().data()),
               from.bytes().size(), from.memory()});
  const bool sound = region_->check(entry);
  if (sound) region_->add_notice(entry, notice);
  return append(entry, sound);
}

template <typename Piece>
Ticket QueueCore::take_pieces(Opcode opcode, ByteOffset offset, std::span<const Piece> pieces,
                              std::uint64_t tag) noexcept {
  if (!has_room()) return {};
  QueueEntry& entry = acquire(tag);
  entry.request.opcode = opcode;
  entry.offset_bytes = offset.bytes;
  const bool sound = region_->check(entry, pieces);
  if (sound && lane_.needs_keys()) entry.name_several(memory_named_.releases());
  return append(entry, sound);
}

Ticket QueueCore::take_slot(Opcode opcode, ByteOffset offset, Slot& slot,
                            std::uint64_t tag) noexcept {
  LocalMemory* const memory = SlotReturn::memory_of(slot);
  std::span<std::byte> bytes;
  if (memory != LocalMemory::of_empty_slot()) [[likely]]
    bytes = slot.bytes();
  return take({opcode, offset, bytes.data(), bytes.size(), memory}, &slot, tag);
}

Status QueueCore::submit() noexcept {
  const Call call{*this};
  if (!call) return not_the_owner("submit");
  if (filled_.count == 0) return {};
  OperationList filled = detach_filled();
  const Clock::time_point now = clock_now();
  const Deadline deadline = deadline_after(now, deadline_);
  for (OperationRecord* at = filled.first; at != nullptr; at = at->next) {
    at->submitted = now;
    at->deadline = deadline;
  }
  if (std::exchange(filled_.any_split, false) && acquire_leases(filled) && Clock::now() >= deadline)
      [[unlikely]] {
    while (!filled.empty()) {
      // The barrier then is before the operation that is taken next.
      if (std::exchange(entry_of(filled.first)->after_barrier, false)) barrier_ = true;
      refuse(filled.take_first(), Outcome::failure(Code::kTimedOut, Reason::kExpired));
    }
    return {};
  }
  if (in_flight_ + held_.count == 0) earliest_ = deadline;
  if (!std::exchange(filled_.any_barrier, false) && held_.empty()) [[likely]] {
    hand_over(filled);
  } else {
    held_.splice(filled);
    hand_over_held();
  }
  return {};
}

void QueueCore::hand_over(OperationList& operations) noexcept {
  in_flight_ += operations.count;
  REMORA_ASSERT_HOT(in_flight_ <= room_.depth, "no more operations are in flight than were taken");
  order_.arrange(operations);
  lane_.submit(std::exchange(operations, {}));
}

Completions QueueCore::wait(std::size_t at_least) noexcept {
  const Call call{*this};
  if (!call) return refused();
  end_completions(serial_);
  if (group_count_ != 0) [[unlikely]] {
    wait_for_groups(at_least);
    return hand_out_all();
  }
  const auto earliest = [this] { return earliest_deadline(); };
  while (true) {
    const std::size_t reachable = std::min(at_least, refused_.count + in_flight_ + held_.count);
    // Also polls if enough operations were refused, so that operations that have completed
    // meanwhile are handed out with them.
    const std::size_t needed = reachable - std::min(reachable, refused_.count);
    if (in_flight_ > 0 && (sink_.ready() == 0 || sink_.ready() < needed))
      lane_.wait(sink_, std::min(needed, in_flight_), DeadlineSource{earliest});
    if (held_.empty()) [[likely]]
      break;
    hand_over_held();
    if (sink_.ready() + refused_.count >= reachable) break;
  }
  return hand_out_all();
}

Completions QueueCore::progress() noexcept {
  const Call call{*this};
  if (!call) return refused();
  end_completions(serial_);
  if (event_) {
    event_.take_event();
    event_.announce_sleep();
  }
  const auto earliest = [this] { return earliest_deadline(); };
  lane_.progress_and_arm(sink_, DeadlineSource{earliest});
  hand_over_held();
  return hand_out_all();
}

Completions QueueCore::hand_out_all() noexcept {
  collect_ended();
  return Completions{this, {ready_.get(), ready_count_}, ++serial_};
}

void QueueCore::collect_ended() noexcept {
  while (!refused_.empty()) hand_out(refused_.take_first(), 1);
  for (std::size_t left = sink_.ready(); left != 0;) {
    const CompletionSink::Run run = sink_.take_run();
    REMORA_ASSERT_HOT(run.count <= in_flight_, "an operation in flight ends once");
    hand_out(*run.first, run.count);
    in_flight_ -= run.count;
    left -= run.count;
  }
}

inline void QueueCore::hand_out(OperationRecord& first, std::size_t count) noexcept {
  if (group_count_ != 0) [[unlikely]]
    return hand_out_grouped(first, count);
  REMORA_ASSERT_HOT(count <= room_.depth - room_.left && ready_count_ + count <= room_.depth,
                    "an operation that was taken is handed out once");
  if (ready_count_ != 0) ready_[ready_count_ - 1].entry_->next = &first;
  OperationRecord* at = &first;
  Completion* const end = &ready_[ready_count_] + count;
  for (Completion* each = end - count; each != end; ++each) {
    at->deadline = Deadline::max();  // it is no longer in flight
    at->name_memory(nullptr);
    each->entry_ = entry_of(at);
    each->ok_ = at->outcome.ok;
    at = at->next;
  }
  ready_count_ += count;
  room_.left += count;
}

void QueueCore::end_completions(std::uint64_t serial) noexcept {
  if (serial != serial_ || ready_count_ == 0) return;
  const std::span<Completion> out{ready_.get(), std::exchange(ready_count_, 0)};
  if (any_slots_) {
    SlotReturn slots;
    for (const Completion& each : out) slots.add(each.entry_->slot);
  }
  // Frees all places at once: they are chained in the order in which they were handed out.
  out.back().entry_->next = free_;
  free_ = out.front().entry_;
  (filled_.count == 0 ? filled_.first : filled_.last->next) = free_;
}

}  // namespace remora::detail

namespace remora {

using detail::closed;
using transport::Opcode;

Error Completion::error() const noexcept { return entry_->sink->owner()->error_of(*entry_); }
Ticket Completion::ticket() const noexcept { return entry_->ticket; }
std::uint64_t Completion::tag() const noexcept { return entry_->tag; }
std::uint64_t Completion::old_value() const noexcept { return entry_->old_value; }
Slot& Completion::slot() noexcept { return entry_->slot; }

Completions::~Completions() {
  if (queue_ != nullptr) queue_->end_completions(serial_);
}
Status Completions::status() const noexcept {
  if (queue_ != nullptr) return {};
  if (serial_ != detail::kNoQueueSerial && serial_ != detail::kForeignQueueSerial)
    return detail::not_the_owner("wait");
  return detail::closed_handle("wait", serial_ == detail::kForeignQueueSerial);
}

namespace {
constexpr detail::QueueRoom kNoRoom{};  // the room of a queue that was moved from
}

Result<Queue> Region::queue(const QueueOptions& options) const {
  if (core_ == nullptr) return detail::closed("queue", core_);
  auto core = detail::QueueCore::create(core_.pointer(), options);
  if (!core) return core.error();
  return Queue{std::move(*core)};
}

Queue::Queue(std::unique_ptr<detail::QueueCore> core) noexcept
    : core_{std::move(core)}, room_{&core_->room()} {}
Queue::~Queue() = default;
Queue::Queue(Queue&& other) noexcept
    : core_{std::move(other.core_)}, room_{std::exchange(other.room_, &kNoRoom)} {}
Queue& Queue::operator=(Queue&& other) noexcept {
  core_ = std::move(other.core_);
  room_ = std::exchange(other.room_, &kNoRoom);
  return *this;
}

Completions Queue::none() const noexcept {
  return {nullptr, {}, core_.foreign() ? detail::kForeignQueueSerial : detail::kNoQueueSerial};
}

ByteOffset Queue::offset_of(Block block) const noexcept {
  // Also in a child of fork(2): the functions that use the offset check which process made the
  // queue.
  return core_.pointer() == nullptr ? ByteOffset{0} : core_->offset_of(block);
}

Ticket Queue::read_bytes(ByteOffset from, std::byte* into, std::size_t length_bytes,
                         detail::LocalMemory* memory, std::uint64_t tag) noexcept {
  if (core_ == nullptr) [[unlikely]]
    return {};
  return core_->take({Opcode::kRead, from, into, length_bytes, memory}, nullptr, tag);
}
Ticket Queue::read(Block from, Target into, std::uint64_t tag) noexcept {
  return read(offset_of(from), into, tag);
}
Ticket Queue::read(ByteOffset from, Slot&& into, std::uint64_t tag) noexcept {
  if (core_ == nullptr) [[unlikely]]
    return {};
  return core_->take_slot(Opcode::kRead, from, into, tag);
}
Ticket Queue::read(Block from, Slot&& into, std::uint64_t tag) noexcept {
  return read(offset_of(from), std::move(into), tag);
}

Ticket Queue::write_bytes(ByteOffset to, const std::byte* from, std::size_t length_bytes,
                          detail::LocalMemory* memory, std::uint64_t tag) noexcept {
  if (core_ == nullptr) [[unlikely]]
    return {};
  // The record has one pointer for both directions; a write's bytes are only read.
  return core_->take({Opcode::kWrite, to, const_cast<std::byte*>(from), length_bytes, memory},
                     nullptr, tag);
}
Ticket Queue::write(Block to, Source from, std::uint64_t tag) noexcept {
  return write(offset_of(to), from, tag);
}
Ticket Queue::write(ByteOffset to, Slot&& from, std::uint64_t tag) noexcept {
  if (core_ == nullptr) [[unlikely]]
    return {};
  return core_->take_slot(Opcode::kWrite, to, from, tag);
}
Ticket Queue::write(Block to, Slot&& from, std::uint64_t tag) noexcept {
  return write(offset_of(to), std::move(from), tag);
}

Ticket Queue::read(ByteOffset from, std::span<const Target> into, std::uint64_t tag) noexcept {
  if (core_ == nullptr) [[unlikely]]
    return {};
  return core_->take_pieces(Opcode::kRead, from, into, tag);
}
Ticket Queue::write(ByteOffset to, std::span<const Source> from, std::uint64_t tag) noexcept {
  if (core_ == nullptr) [[unlikely]]
    return {};
  return core_->take_pieces(Opcode::kWrite, to, from, tag);
}
Ticket Queue::write_notify(ByteOffset to, Source from, std::uint32_t notice,
                           std::uint64_t tag) noexcept {
  if (core_ == nullptr) [[unlikely]]
    return {};
  return core_->take_notify(to, from, notice, tag);
}
Ticket Queue::write_zeroes(ByteOffset at, std::uint64_t length_bytes, std::uint64_t tag) noexcept {
  if (core_ == nullptr) [[unlikely]]
    return {};
  return core_->take({.opcode = Opcode::kWriteZeroes}, at, length_bytes, tag);
}
Ticket Queue::flush_visible(std::uint64_t tag) noexcept {
  if (core_ == nullptr) [[unlikely]]
    return {};
  return core_->take({.opcode = Opcode::kFlush}, ByteOffset{0}, 1, tag);
}

Ticket Queue::compare_swap(ByteOffset at, std::uint64_t expected, std::uint64_t desired,
                           std::uint64_t tag) noexcept {
  if (core_ == nullptr) [[unlikely]]
    return {};
  return core_->take(transport::WorkRequest::compare_swap(expected, desired), at,
                     sizeof(std::uint64_t), tag);
}
Ticket Queue::fetch_add(ByteOffset at, std::uint64_t delta, std::uint64_t tag) noexcept {
  if (core_ == nullptr) [[unlikely]]
    return {};
  return core_->take(transport::WorkRequest::fetch_add(delta), at, sizeof(std::uint64_t), tag);
}

Status Queue::select(const Region& region) noexcept {
  if (core_ == nullptr) return closed("select", core_);
  if (region.core_ == nullptr) return closed("select", region.core_);
  return core_->select(region.core_.pointer());
}
Status Queue::submit() noexcept {
  if (core_ == nullptr) [[unlikely]]
    return closed("submit", core_);
  return core_->submit();
}
void Queue::barrier() noexcept {
  if (core_ != nullptr) core_->barrier();
}
Status Queue::cancel(Ticket ticket) noexcept {
  if (core_ == nullptr) return closed("cancel", core_);
  return core_->cancel(ticket);
}
Result<int> Queue::event_fd() noexcept {
  if (core_ == nullptr) return closed("event_fd", core_);
  return core_->event_fd();
}
Completions Queue::progress() noexcept {
  if (core_ == nullptr) [[unlikely]]
    return none();
  return core_->progress();
}
std::chrono::steady_clock::time_point Queue::next_deadline() const noexcept {
  return core_ == nullptr ? Deadline::max() : core_->next_deadline();
}
Completions Queue::wait(std::size_t at_least) noexcept {
  if (core_ == nullptr) [[unlikely]]
    return none();
  return core_->wait(at_least);
}

}  // namespace remora
