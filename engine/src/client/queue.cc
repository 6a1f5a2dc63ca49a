#include <algorithm>
#include <utility>

#include <remora/engine/queue.h>

#include "client/queue_core.h"

namespace remora::detail {

using transport::Opcode;

namespace {
void append(CompletionSink& sink, OperationRecord& operation) noexcept {
  operation.next = nullptr;
  if (sink.last == nullptr)
    sink.first = &operation;
  else
    sink.last->next = &operation;
  sink.last = &operation;
  ++sink.count;
}
}  // namespace

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
    : region_{std::move(region)}, deadline_{deadline}, table_(depth), ready_(depth) {
  for (std::size_t i = 0; i < depth; ++i)
    table_[i].next_free = i + 1 < depth ? static_cast<std::uint32_t>(i + 1) : kNone;
}

QueueCore::~QueueCore() {
  if (in_flight_ > 0)
    region_->session().lane().wait(sink_, in_flight_, [this] { return earliest_deadline(); });
}

QueueCore::Entry* QueueCore::acquire(std::uint64_t tag) noexcept {
  if (free_ == kNone) return nullptr;
  Entry& entry = table_[free_];
  free_ = entry.next_free;
  static_cast<OperationRecord&>(entry) = OperationRecord{};
  entry.tag = tag;
  ++taken_;
  return &entry;
}

Ticket QueueCore::keep(Entry& entry, bool buffer_valid) noexcept {
  entry.next = nullptr;
  if (!region_->check(entry, buffer_valid)) {
    append(refused_, entry);
  } else {
    if (filled_last_ == nullptr)
      filled_first_ = &entry;
    else
      filled_last_->next = &entry;
    filled_last_ = &entry;
    ++filled_;
  }
  return Ticket{static_cast<std::uint32_t>(&entry - table_.data()), entry.generation};
}

Ticket QueueCore::take(const Transfer& transfer, Slot* slot, std::uint64_t tag) noexcept {
  Entry* const entry = acquire(tag);
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
  Entry* const entry = acquire(tag);
  if (entry == nullptr) return {};
  entry->opcode = opcode;
  entry->offset_bytes = offset.bytes;
  entry->length_bytes = sizeof(std::uint64_t);
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
    at->sink = &sink_;
    static_cast<Entry*>(at)->in_flight = true;
  }
  if (in_flight_ == 0) earliest_ = deadline;
  in_flight_ += filled_;
  OperationRecord* const first = filled_first_;
  filled_first_ = filled_last_ = nullptr;
  filled_ = 0;
  region_->session().lane().submit(first);
  return {};
}

Deadline QueueCore::earliest_deadline() noexcept {
  // Deadlines of a queue only grow, so the old answer holds until it has passed.
  if (Clock::now() < earliest_) return earliest_;
  earliest_ = Deadline::max();
  for (const Entry& entry : table_)
    if (entry.in_flight) earliest_ = std::min(earliest_, entry.deadline);
  return earliest_;
}

Completions QueueCore::wait(std::size_t at_least) noexcept {
  end(serial_);
  LaneDriver& lane = region_->session().lane();
  const std::size_t reachable = std::min(at_least, refused_.count + in_flight_);
  // Also when enough was refused: whatever has completed meanwhile is handed out with it.
  const std::size_t needed = reachable > refused_.count ? reachable - refused_.count : 0;
  if (in_flight_ > 0) lane.wait(sink_, needed, [this] { return earliest_deadline(); });
  hand_out(std::exchange(refused_, {}).first);
  if (in_flight_ > 0) {
    const std::size_t before = ready_count_;
    hand_out(lane.take(sink_));
    in_flight_ -= ready_count_ - before;
  }
  return Completions{this, {ready_.data(), ready_count_}, ++serial_};
}

void QueueCore::hand_out(OperationRecord* first) noexcept {
  while (first != nullptr) {
    Entry& entry = *static_cast<Entry*>(first);
    first = entry.next;
    Completion& completion = ready_[ready_count_++];
    completion.slot_ = std::move(entry.slot);
    completion.operation_ = operation_name(entry.opcode);
    completion.tag_ = entry.tag;
    completion.old_value_ = entry.old_value;
    const auto index = static_cast<std::uint32_t>(&entry - table_.data());
    completion.ticket_ = Ticket{index, entry.generation};
    completion.code_ =
        entry.outcome.ok ? Completion::kOk : static_cast<std::uint8_t>(entry.outcome.code);
    completion.reason_ = entry.outcome.reason;
    completion.status_ = entry.outcome.status;
    completion.vendor_error_ = entry.outcome.vendor_error;
    // Generation 0 means "no ticket".
    if (++entry.generation == 0) entry.generation = 1;
    entry.in_flight = false;
    entry.next_free = free_;
    free_ = index;
    --taken_;
  }
}

void QueueCore::end(std::uint64_t serial) noexcept {
  if (serial != serial_) return;
  for (std::size_t i = 0; i < ready_count_; ++i) ready_[i].slot_ = Slot{};
  ready_count_ = 0;
}

}  // namespace remora::detail

namespace remora {

using transport::Opcode;

Error Completion::error() const noexcept {
  return detail::error_of({.ok = false,
                           .code = static_cast<Code>(code_),
                           .reason = reason_,
                           .status = status_,
                           .vendor_error = vendor_error_},
                          operation_);
}

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
