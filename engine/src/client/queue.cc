#include <algorithm>
#include <bit>
#include <cerrno>
#include <new>
#include <sys/epoll.h>
#include <utility>

#include <remora/engine/queue.h>
#include <remora/engine/region.h>

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
  try {
    return std::make_unique<QueueCore>(std::move(region), options.depth, deadline);
  } catch (const std::bad_alloc&) {
    return Error{Code::kOutOfMemory, "queue"};
  }
}

QueueCore::QueueCore(std::shared_ptr<RegionCore> region, std::size_t depth,
                     std::chrono::nanoseconds deadline)
    : region_{region.get()},
      lane_{region->session().next_lane()},
      deadline_{deadline},
      depth_{depth},
      table_(2 * depth),
      order_{lane_, depth},
      ring_(std::bit_ceil(depth)),
      sink_{ring_},
      ready_(depth),
      free_{table_.data()} {
  regions_.emplace(region_, std::move(region));
  for (std::size_t i = 0; i < table_.size(); ++i) {
    table_[i].index = static_cast<std::uint32_t>(i);
    table_[i].next_free = i + 1 < table_.size() ? &table_[i + 1] : nullptr;
    table_[i].deadline = Deadline::max();
    table_[i].sink = &sink_;
  }
}

QueueCore::~QueueCore() {
  const auto earliest = [this] { return earliest_deadline(); };
  if (in_flight_ > 0) lane_.wait(sink_, in_flight_, DeadlineSource{earliest});
  while (!held_.empty())
    if (OperationRecord& operation = held_.take_first(); !operation.whole)
      lane_.take_back(operation);
  if (event_) lane_.settle_events();
}

[[gnu::always_inline]] inline QueueEntry* QueueCore::acquire(std::uint64_t tag) noexcept {
  if (taken_ == depth_) return nullptr;
  QueueEntry& entry = *free_;
  free_ = entry.next_free;
  ++taken_;
  entry.tag = tag;
  entry.taken = true;
  return &entry;
}

/// Puts an operation in line: to be submitted, or, not sound, to be handed out.
[[gnu::always_inline]] inline Ticket QueueCore::keep(QueueEntry& entry, bool sound) noexcept {
  entry.after_barrier = barrier_;
  if (sound) [[likely]] {
    barrier_ = false;
    filled_.append(entry);
  } else {  // a barrier stands before the next one instead
    entry.after_barrier = false;
    keep_refused(entry);
  }
  return Ticket{entry.index, entry.generation};
}

[[gnu::always_inline]] inline bool QueueCore::fill(QueueEntry& entry,
                                                   const Transfer& transfer) noexcept {
  entry.request.opcode = transfer.opcode;
  entry.request.local = transfer.local;
  entry.offset_bytes = transfer.offset.bytes;
  entry.length_bytes = transfer.length_bytes;
  entry.memory = transfer.memory;
  return region_->check(entry);
}

[[gnu::always_inline]] inline Ticket QueueCore::take(const Transfer& transfer, Slot* slot,
                                                     std::uint64_t tag) noexcept {
  QueueEntry* const entry = acquire(tag);
  if (entry == nullptr) return {};
  if (slot != nullptr) entry->slot = std::move(*slot);
  return keep(*entry, fill(*entry, transfer));
}

Ticket QueueCore::take_transfer(const Transfer& transfer, Slot* slot, std::uint64_t tag) noexcept {
  return take(transfer, slot, tag);
}

Ticket QueueCore::take(const transport::WorkRequest& request, ByteOffset offset,
                       std::uint64_t length_bytes, std::uint64_t tag) noexcept {
  QueueEntry* const entry = acquire(tag);
  if (entry == nullptr) return {};
  entry->request = request;
  entry->offset_bytes = offset.bytes;
  entry->length_bytes = length_bytes;
  entry->memory = nullptr;
  return keep(*entry, region_->check(*entry));
}

Ticket QueueCore::take_notify(ByteOffset offset, const Source& from, std::uint32_t notice,
                              std::uint64_t tag) noexcept {
  QueueEntry* const entry = acquire(tag);
  if (entry == nullptr) return {};
  const bool sound =
      fill(*entry, {Opcode::kWrite, offset, const_cast<std::byte*>(from.bytes().data()),
                    from.bytes().size(), from.memory()});
  if (sound) region_->add_notice(*entry, notice);
  return keep(*entry, sound);
}

template <typename Piece>
Ticket QueueCore::take_pieces(Opcode opcode, ByteOffset offset, std::span<const Piece> pieces,
                              std::uint64_t tag) noexcept {
  QueueEntry* const entry = acquire(tag);
  if (entry == nullptr) return {};
  entry->request.opcode = opcode;
  entry->offset_bytes = offset.bytes;
  return keep(*entry, region_->check(*entry, pieces));
}

Status QueueCore::select(const std::shared_ptr<RegionCore>& region) noexcept {
  if (&region->session() != &region_->session())
    return Error{Code::kInvalidArgument, "select"}.with_subject("a region of another session");
  try {
    regions_.try_emplace(region.get(), region);
  } catch (const std::bad_alloc&) {
    return Error{Code::kOutOfMemory, "select"};
  }
  region_ = region.get();
  return {};
}

Ticket QueueCore::take_slot(Opcode opcode, ByteOffset offset, Slot& slot,
                            std::uint64_t tag) noexcept {
  const Target bytes{slot};
  return take({opcode, offset, bytes.bytes().data(), bytes.bytes().size(), bytes.memory()}, &slot,
              tag);
}

Error not_the_owner(Operation operation) noexcept {
  return Error{Code::kBusy, operation}.with_subject("another thread is in a call of this queue");
}

Status QueueCore::submit() noexcept {
  const Turn turn{*this};
  if (!turn) return not_the_owner("submit");
  if (filled_.empty()) return {};
  const Clock::time_point now = Clock::now();
  const Deadline deadline = deadline_after(now, deadline_);
  bool barred = !held_.empty();
  bool any_split = false;
  for (OperationRecord* at = filled_.first; at != nullptr; at = at->next) {
    at->submitted = now;
    at->deadline = deadline;
    any_split = any_split || !at->whole;
    barred = barred || static_cast<QueueEntry*>(at)->after_barrier;
  }
  if (any_split && lend_to_filled() && Clock::now() >= deadline) [[unlikely]] {
    while (!filled_.empty()) refuse(filled_.take_first(), Code::kTimedOut);
    return {};
  }
  if (in_flight_ + held_.count == 0) earliest_ = deadline;
  if (!barred) [[likely]] {
    hand_over(filled_);
  } else {
    held_.splice(filled_);
    hand_over_held();
  }
  return {};
}

/// True when registrations may have been made, which takes time.
bool QueueCore::lend_to_filled() noexcept {
  bool any = false;
  for (OperationRecord* at = filled_.first; at != nullptr; at = at->next)
    if (!at->whole) any = lane_.lend(*at, LaneDriver::Lend::kNew) || any;
  return any;
}

void QueueCore::hand_over(OperationList& operations) noexcept {
  in_flight_ += operations.count;
  order_.arrange(operations);
  lane_.submit(std::exchange(operations, {}));
}

/// Hands over what no barrier holds back any more.
void QueueCore::hand_over_held() noexcept {
  while (!held_.empty()) {
    const bool clear = sink_.ready() == in_flight_;
    if (static_cast<QueueEntry*>(held_.first)->after_barrier && !clear) return;
    const Clock::time_point now = Clock::now();
    OperationList segment;
    do {
      OperationRecord& operation = held_.take_first();
      if (operation.deadline <= now)
        refuse(operation, Code::kTimedOut);
      else
        segment.append(operation);
    } while (!held_.empty() && !static_cast<QueueEntry*>(held_.first)->after_barrier);
    if (!segment.empty()) hand_over(segment);
  }
}

/// Ends an operation that never reached the lane.
void QueueCore::refuse(OperationRecord& operation, Code code) noexcept {
  if (!operation.whole) lane_.take_back(operation);
  operation.outcome = Outcome::failure(code);
  EndTally{region_->session().metrics()}.add(operation);
  keep_refused(operation);
}

/// It is there to be handed out: an event loop of the application's hears of it.
void QueueCore::keep_refused(OperationRecord& operation) noexcept {
  refused_.append(operation);
  if (event_) event_.tell();
}

void QueueCore::barrier() noexcept {
  // Nothing stands before it: nothing to wait for.
  barrier_ = barrier_ || filled_.count + held_.count + in_flight_ > 0;
}

/// Puts a barrier before `operation`, or before what is taken next.
void QueueCore::bar(OperationRecord* operation) noexcept {
  if (operation != nullptr)
    static_cast<QueueEntry*>(operation)->after_barrier = true;
  else
    barrier_ = true;
}

Status QueueCore::cancel(Ticket ticket) noexcept {
  const Turn turn{*this};
  if (!turn) return not_the_owner("cancel");
  const Error unknown = Error{Code::kNotFound, "cancel"}.with_subject("ticket");
  if (!ticket || ticket.index() >= table_.size()) return unknown;
  QueueEntry& entry = table_[ticket.index()];
  // One that is out with the caller has ended, and so has one whose place is free.
  if (entry.generation != ticket.generation() || !entry.taken) return unknown;
  OperationRecord* after = nullptr;
  const bool held = held_.remove(entry, &after);
  if (held || filled_.remove(entry, &after)) {
    if (entry.after_barrier) bar(after != nullptr ? after : held ? filled_.first : nullptr);
    refuse(entry, Code::kCancelled);
    return {};
  }
  if (lane_.cancel(entry)) return {};
  return Error{Code::kBusy, "cancel"}.with_subject("posted");
}

Deadline QueueCore::earliest_deadline() const noexcept {
  // Deadlines of a queue only grow, so the old answer holds until it has passed.
  if (Clock::now() < earliest_) return earliest_;
  earliest_ = Deadline::max();
  for (const QueueEntry& entry : table_) earliest_ = std::min(earliest_, entry.deadline);
  return earliest_;
}

Completions QueueCore::wait(std::size_t at_least) noexcept {
  const Turn turn{*this};
  if (!turn) return refused();
  end(serial_);
  const auto earliest = [this] { return earliest_deadline(); };
  while (true) {
    const std::size_t reachable = std::min(at_least, refused_.count + in_flight_ + held_.count);
    // Also when enough was refused: whatever has completed meanwhile is handed out with it.
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
  const Turn turn{*this};
  if (!turn) return refused();
  end(serial_);
  if (event_) {
    event_.clear();
    event_.rest();
  }
  const auto earliest = [this] { return earliest_deadline(); };
  lane_.progress_and_arm(sink_, DeadlineSource{earliest});
  hand_over_held();
  return hand_out_all();
}

Completions QueueCore::hand_out_all() noexcept {
  while (!refused_.empty()) hand_out(refused_.take_first());
  const std::size_t completed = sink_.ready();
  for (std::size_t i = 0; i < completed; ++i) hand_out(sink_.take());
  in_flight_ -= completed;
  return Completions{this, {ready_.data(), ready_count_}, ++serial_};
}

Result<int> QueueCore::event_fd() noexcept {
  if (epoll_) return epoll_.get();
  if (!event_ && !event_.open()) return Error{Code::kSystem, "eventfd"}.with_errno(errno);
  UniqueFd epoll{::epoll_create1(EPOLL_CLOEXEC)};
  if (!epoll) return Error{Code::kSystem, "epoll_create1"}.with_errno(errno);
  for (const int descriptor : {event_.event(), lane_.event_fd()}) {
    epoll_event wanted{.events = EPOLLIN, .data = {.fd = descriptor}};
    if (descriptor >= 0 && ::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, descriptor, &wanted) != 0)
      return Error{Code::kSystem, "epoll_ctl"}.with_errno(errno);
  }
  epoll_ = std::move(epoll);
  sink_.watch(event_);
  // What has completed before, or completes before the first progress(), is told of too.
  signal_event(event_.event());
  return epoll_.get();
}

Deadline QueueCore::next_deadline() const noexcept {
  return in_flight_ + held_.count == 0 ? Deadline::max() : earliest_deadline();
}

inline void QueueCore::hand_out(OperationRecord& operation) noexcept {
  operation.deadline = Deadline::max();  // no longer in flight
  auto& entry = static_cast<QueueEntry&>(operation);
  entry.taken = false;
  ready_[ready_count_++].entry_ = &entry;
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
    free_ = &entry;
  }
  ready_count_ = 0;
}

}  // namespace remora::detail

namespace remora {

using transport::Opcode;

bool Completion::ok() const noexcept { return entry_->outcome.ok; }
Error Completion::error() const noexcept {
  return detail::error_of(entry_->outcome, detail::operation_name(entry_->request.opcode));
}
Ticket Completion::ticket() const noexcept { return Ticket{entry_->index, entry_->generation}; }
std::uint64_t Completion::tag() const noexcept { return entry_->tag; }
std::uint64_t Completion::old_value() const noexcept { return entry_->old_value; }
Slot& Completion::slot() noexcept { return entry_->slot; }

Completions::~Completions() {
  if (queue_ != nullptr) queue_->end(serial_);
}
Status Completions::status() const noexcept {
  if (queue_ != nullptr) return {};
  return detail::not_the_owner("wait");
}

Queue::Queue(std::unique_ptr<detail::QueueCore> core) noexcept : core_{std::move(core)} {}
Queue::~Queue() = default;
Queue::Queue(Queue&&) noexcept = default;
Queue& Queue::operator=(Queue&&) noexcept = default;

Ticket Queue::read(ByteOffset from, Target into, std::uint64_t tag) noexcept {
  return core_->take({Opcode::kRead, from, into.bytes().data(), into.bytes().size(), into.memory()},
                     nullptr, tag);
}
Ticket Queue::read(Block from, Target into, std::uint64_t tag) noexcept {
  return read(core_->offset_of(from), into, tag);
}
Ticket Queue::read(ByteOffset from, Slot&& into, std::uint64_t tag) noexcept {
  return core_->take_slot(Opcode::kRead, from, into, tag);
}
Ticket Queue::read(Block from, Slot&& into, std::uint64_t tag) noexcept {
  return read(core_->offset_of(from), std::move(into), tag);
}

Ticket Queue::write(ByteOffset to, Source from, std::uint64_t tag) noexcept {
  // The record has one pointer for both directions; a write's bytes are only read.
  return core_->take({Opcode::kWrite, to, const_cast<std::byte*>(from.bytes().data()),
                      from.bytes().size(), from.memory()},
                     nullptr, tag);
}
Ticket Queue::write(Block to, Source from, std::uint64_t tag) noexcept {
  return write(core_->offset_of(to), from, tag);
}
Ticket Queue::write(ByteOffset to, Slot&& from, std::uint64_t tag) noexcept {
  return core_->take_slot(Opcode::kWrite, to, from, tag);
}
Ticket Queue::write(Block to, Slot&& from, std::uint64_t tag) noexcept {
  return write(core_->offset_of(to), std::move(from), tag);
}

Ticket Queue::read(ByteOffset from, std::span<const Target> into, std::uint64_t tag) noexcept {
  return core_->take_pieces(Opcode::kRead, from, into, tag);
}
Ticket Queue::write(ByteOffset to, std::span<const Source> from, std::uint64_t tag) noexcept {
  return core_->take_pieces(Opcode::kWrite, to, from, tag);
}
Ticket Queue::write_notify(ByteOffset to, Source from, std::uint32_t notice,
                           std::uint64_t tag) noexcept {
  return core_->take_notify(to, from, notice, tag);
}
Ticket Queue::write_zeroes(ByteOffset at, std::uint64_t length_bytes, std::uint64_t tag) noexcept {
  return core_->take({.opcode = Opcode::kWriteZeroes}, at, length_bytes, tag);
}
Ticket Queue::flush_visible(std::uint64_t tag) noexcept {
  return core_->take({.opcode = Opcode::kFlush}, ByteOffset{0}, 1, tag);
}

Ticket Queue::compare_swap(ByteOffset at, std::uint64_t expected, std::uint64_t desired,
                           std::uint64_t tag) noexcept {
  return core_->take({.compare_or_add = expected, .swap = desired, .opcode = Opcode::kCompareSwap},
                     at, sizeof(std::uint64_t), tag);
}
Ticket Queue::fetch_add(ByteOffset at, std::uint64_t delta, std::uint64_t tag) noexcept {
  return core_->take({.compare_or_add = delta, .opcode = Opcode::kFetchAdd}, at,
                     sizeof(std::uint64_t), tag);
}

Status Queue::select(const Region& region) noexcept { return core_->select(region.core_); }
Status Queue::submit() noexcept { return core_->submit(); }
void Queue::barrier() noexcept { core_->barrier(); }
Status Queue::cancel(Ticket ticket) noexcept { return core_->cancel(ticket); }
Result<int> Queue::event_fd() noexcept { return core_->event_fd(); }
Completions Queue::progress() noexcept { return core_->progress(); }
std::chrono::steady_clock::time_point Queue::next_deadline() const noexcept {
  return core_->next_deadline();
}
Completions Queue::wait(std::size_t at_least) noexcept { return core_->wait(at_least); }
std::size_t Queue::depth() const noexcept { return core_->depth(); }
std::size_t Queue::size() const noexcept { return core_->size(); }

}  // namespace remora
