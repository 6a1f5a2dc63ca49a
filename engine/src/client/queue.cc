#include <algorithm>
#include <bit>
#include <utility>

#include <remora/engine/queue.h>

#include "client/queue_core.h"

namespace remora::detail {

using transport::Opcode;

Result<std::unique_ptr<QueueCore>> QueueCore::create(std::shared_ptr<RegionCore> region,
                                                     const QueueOptions& options) {
  if (options.depth == 0 || options.depth > kQueueDepthMax)
    return Error{Code::kInvalidArgument, "queue"}.with_subject("depth").with_limit(options.depth,
                                                                                   kQueueDepthMax);
  if (!region->session().connected())
    return Error{Code::kConnectionLost, "queue"}.with_reason(Reason::kPeerGone);
  const auto deadline = options.deadline > options.deadline.zero()
                            ? options.deadline
                            : region->session().engine().options().operation_deadline;
  return std::make_unique<QueueCore>(std::move(region), options.depth, deadline);
}

QueueCore::QueueCore(std::shared_ptr<RegionCore> region, std::size_t depth,
                     std::chrono::nanoseconds deadline)
    : region_{std::move(region)},
      deadline_{deadline},
      depth_{depth},
      table_(2 * depth),
      ring_(std::bit_ceil(depth)),
      sink_{ring_},
      ready_(depth) {
  for (std::size_t i = 0; i < table_.size(); ++i) {
    table_[i].index = static_cast<std::uint32_t>(i);
    table_[i].next_free = static_cast<std::uint32_t>(i + 1);
    table_[i].deadline = Deadline::max();
    table_[i].sink = &sink_;
  }
}

QueueCore::~QueueCore() {
  const auto earliest = [this] { return earliest_deadline(); };
  if (in_flight_ > 0) region_->session().lane().wait(sink_, in_flight_, DeadlineSource{earliest});
}

[[gnu::always_inline]] inline QueueEntry* QueueCore::acquire(std::uint64_t tag) noexcept {
  if (taken_ == depth_) return nullptr;
  QueueEntry& entry = table_[free_];
  free_ = entry.next_free;
  ++taken_;
  entry.next = nullptr;
  entry.planned_bytes = 0;
  entry.any_posted = false;
  entry.tag = tag;
  return &entry;
}

[[gnu::always_inline]] inline Ticket QueueCore::keep(QueueEntry& entry,
                                                     bool buffer_valid) noexcept {
  if (region_->check(entry, buffer_valid)) [[likely]] {
    (filled_first_ == nullptr ? filled_first_ : filled_last_->next) = &entry;
    filled_last_ = &entry;
    ++filled_;
  } else {
    (refused_first_ == nullptr ? refused_first_ : refused_last_->next) = &entry;
    refused_last_ = &entry;
    ++refused_;
  }
  return Ticket{entry.index, entry.generation};
}

[[gnu::always_inline]] inline Ticket QueueCore::take(const Transfer& transfer, Slot* slot,
                                                     std::uint64_t tag) noexcept {
  QueueEntry* const entry = acquire(tag);
  if (entry == nullptr) return {};
  entry->opcode = transfer.opcode;
  entry->offset_bytes = transfer.offset.bytes;
  entry->local = transfer.local;
  entry->length_bytes = transfer.length_bytes;
  entry->memory = transfer.memory;
  if (slot != nullptr) entry->slot = std::move(*slot);
  return keep(*entry, transfer.buffer_valid);
}

Ticket QueueCore::take_atomic(Opcode opcode, ByteOffset offset, std::uint64_t compare_or_add,
                              std::uint64_t swap, std::uint64_t tag) noexcept {
  QueueEntry* const entry = acquire(tag);
  if (entry == nullptr) return {};
  entry->opcode = opcode;
  entry->offset_bytes = offset.bytes;
  entry->local = nullptr;
  entry->length_bytes = sizeof(std::uint64_t);
  entry->memory = nullptr;
  entry->compare_or_add = compare_or_add;
  entry->swap = swap;
  return keep(*entry, true);
}

Status QueueCore::submit() noexcept {
  if (filled_first_ == nullptr) return {};
  const Clock::time_point now = Clock::now();
  const Deadline deadline = deadline_after(now, deadline_);
  for (OperationRecord* at = filled_first_; at != nullptr; at = at->next) {
    at->submitted = now;
    at->deadline = deadline;
  }
  if (in_flight_ == 0) earliest_ = deadline;
  in_flight_ += filled_;
  OperationRecord* const first = filled_first_;
  filled_first_ = filled_last_ = nullptr;
  filled_ = 0;
  region_->session().lane().submit(first);
  return {};
}

Deadline QueueCore::earliest_deadline() const noexcept {
  // Deadlines of a queue only grow, so the old answer holds until it has passed.
  if (Clock::now() < earliest_) return earliest_;
  earliest_ = Deadline::max();
  for (const QueueEntry& entry : table_) earliest_ = std::min(earliest_, entry.deadline);
  return earliest_;
}

Completions QueueCore::wait(std::size_t at_least) noexcept {
  end(serial_);
  const std::size_t reachable = std::min(at_least, refused_ + in_flight_);
  // Also when enough was refused: whatever has completed meanwhile is handed out with it.
  const std::size_t needed = reachable > refused_ ? reachable - refused_ : 0;
  if (in_flight_ > 0 && (sink_.ready() == 0 || sink_.ready() < needed)) {
    const auto earliest = [this] { return earliest_deadline(); };
    region_->session().lane().wait(sink_, needed, DeadlineSource{earliest});
  }
  while (refused_first_ != nullptr) {
    OperationRecord& operation = *refused_first_;
    refused_first_ = operation.next;
    hand_out(operation);
  }
  refused_ = 0;
  const std::size_t completed = sink_.ready();
  for (std::size_t i = 0; i < completed; ++i) hand_out(sink_.take());
  in_flight_ -= completed;
  return Completions{this, {ready_.data(), ready_count_}, ++serial_};
}

inline void QueueCore::hand_out(OperationRecord& operation) noexcept {
  operation.deadline = Deadline::max();  // no longer in flight
  ready_[ready_count_++].entry_ = static_cast<QueueEntry*>(&operation);
  --taken_;
}

void QueueCore::end(std::uint64_t serial) noexcept {
  if (serial != serial_) return;
  for (std::size_t i = 0; i < ready_count_; ++i) {
    QueueEntry& entry = *ready_[i].entry_;
    entry.slot = Slot{};
    // Generation 0 means "no ticket".
    if (++entry.generation == 0) entry.generation = 1;
    entry.next_free = free_;
    free_ = entry.index;
  }
  ready_count_ = 0;
}

}  // namespace remora::detail

namespace remora {

using transport::Opcode;

bool Completion::ok() const noexcept { return entry_->outcome.ok; }
Error Completion::error() const noexcept {
  return detail::error_of(entry_->outcome, detail::operation_name(entry_->opcode));
}
Ticket Completion::ticket() const noexcept { return Ticket{entry_->index, entry_->generation}; }
std::uint64_t Completion::tag() const noexcept { return entry_->tag; }
std::uint64_t Completion::old_value() const noexcept { return entry_->old_value; }
Slot& Completion::slot() noexcept { return entry_->slot; }

Completions::~Completions() { queue_->end(serial_); }

Queue::Queue(std::unique_ptr<detail::QueueCore> core) noexcept : core_{std::move(core)} {}
Queue::~Queue() = default;
Queue::Queue(Queue&&) noexcept = default;
Queue& Queue::operator=(Queue&&) noexcept = default;

Ticket Queue::read(ByteOffset from, Target into, std::uint64_t tag) noexcept {
  return core_->take(
      {Opcode::kRead, from, into.bytes().data(), into.bytes().size(), into.memory(), into.valid()},
      nullptr, tag);
}
Ticket Queue::read(Block from, Target into, std::uint64_t tag) noexcept {
  return read(core_->offset_of(from), into, tag);
}
Ticket Queue::read(ByteOffset from, Slot&& into, std::uint64_t tag) noexcept {
  const Target target{into};
  return core_->take({Opcode::kRead, from, target.bytes().data(), target.bytes().size(),
                      target.memory(), target.valid()},
                     &into, tag);
}
Ticket Queue::read(Block from, Slot&& into, std::uint64_t tag) noexcept {
  return read(core_->offset_of(from), std::move(into), tag);
}

Ticket Queue::write(ByteOffset to, Source from, std::uint64_t tag) noexcept {
  // The record has one pointer for both directions; a write's bytes are only read.
  return core_->take({Opcode::kWrite, to, const_cast<std::byte*>(from.bytes().data()),
                      from.bytes().size(), from.memory(), from.valid()},
                     nullptr, tag);
}
Ticket Queue::write(Block to, Source from, std::uint64_t tag) noexcept {
  return write(core_->offset_of(to), from, tag);
}
Ticket Queue::write(ByteOffset to, Slot&& from, std::uint64_t tag) noexcept {
  const Target source{from};
  return core_->take({Opcode::kWrite, to, source.bytes().data(), source.bytes().size(),
                      source.memory(), source.valid()},
                     &from, tag);
}
Ticket Queue::write(Block to, Slot&& from, std::uint64_t tag) noexcept {
  return write(core_->offset_of(to), std::move(from), tag);
}

Ticket Queue::compare_swap(ByteOffset at, std::uint64_t expected, std::uint64_t desired,
                           std::uint64_t tag) noexcept {
  return core_->take_atomic(Opcode::kCompareSwap, at, expected, desired, tag);
}
Ticket Queue::fetch_add(ByteOffset at, std::uint64_t delta, std::uint64_t tag) noexcept {
  return core_->take_atomic(Opcode::kFetchAdd, at, delta, 0, tag);
}

Status Queue::submit() noexcept { return core_->submit(); }
Completions Queue::wait(std::size_t at_least) noexcept { return core_->wait(at_least); }
std::size_t Queue::depth() const noexcept { return core_->depth(); }
std::size_t Queue::size() const noexcept { return core_->size(); }

}  // namespace remora
