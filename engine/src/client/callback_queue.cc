#include <algorithm>
#include <bit>
#include <exception>
#include <new>
#include <sys/epoll.h>
#include <utility>

#include <remora/engine/callback_queue.h>
#include <remora/engine/region.h>

#include "client/callback_core.h"
#include "client/poller.h"
#include "support/log.h"

namespace remora::detail {

namespace {
/// What an operation may take beyond its deadline.
constexpr std::chrono::seconds kEndGrace{2};
/// A poller looks at a lane with something in flight at least this often.
constexpr std::chrono::milliseconds kPollerSleepMost{100};
/// The same where the lane cannot wake it.
constexpr std::chrono::milliseconds kUnwatchedSleepMost{1};
}  // namespace

Result<CallbackCore*> CallbackCore::create(std::shared_ptr<RegionCore> region,
                                           const QueueOptions& options) {
  if (options.depth == 0 || options.depth > kQueueDepthMax)
    return Error{Code::kInvalidArgument, "callback_queue"}.with_subject("depth").with_limit(
        options.depth, kQueueDepthMax);
  SessionCore& session = region->session();
  if (!session.connected())
    return Error{Code::kConnectionLost, "callback_queue"}.with_reason(Reason::kPeerGone);
  const auto deadline = options.deadline > options.deadline.zero()
                            ? options.deadline
                            : session.engine().options().operation_deadline;
  try {
    auto poller = session.engine().poller();
    if (!poller) return poller.error();
    auto core =
        std::make_unique<CallbackCore>(std::move(region), **poller, options.depth, deadline);
    (*poller)->add(*core);
    return core.release();
  } catch (const std::bad_alloc&) {
    return Error{Code::kOutOfMemory, "callback_queue"};
  }
}

CallbackCore::CallbackCore(std::shared_ptr<RegionCore> region, Poller& poller, std::size_t depth,
                           std::chrono::nanoseconds deadline)
    : region_{std::move(region)},
      poller_{poller},
      deadline_{deadline},
      depth_{depth},
      immediate_{lane().event_fd() < 0},
      table_(depth + 1),
      free_{static_cast<std::uint32_t>(depth + 1)},
      ring_(std::bit_ceil(depth)),
      sink_{ring_} {
  for (std::size_t i = 0; i < table_.size(); ++i) {
    table_[i].index = static_cast<std::uint32_t>(i);
    table_[i].sink = &sink_;
  }
  sink_.watch(poller.watcher());
}

/// A place for one more operation, or null, and `why` says why.
CallbackEntry* CallbackCore::acquire(Status& why) noexcept {
  if (closing_.load(std::memory_order_acquire)) [[unlikely]] {
    why = Error{Code::kClosed, "callback_queue"};
    return nullptr;
  }
  std::size_t before = in_flight_.load(std::memory_order_relaxed);
  do {
    if (before >= depth_) {
      why = Error{Code::kWouldBlock, "callback_queue"}.with_limit(depth_, depth_);
      return nullptr;
    }
  } while (!in_flight_.compare_exchange_weak(before, before + 1, std::memory_order_acq_rel,
                                             std::memory_order_relaxed));
  // The first one in flight wakes the poller, which sleeps without looking at the lane until then;
  // at once, since those that come meanwhile are not the first.
  if (before == 0 && !immediate_) poller_.watcher().tell();
  // There is one: no more are out than are in flight, and the one whose callback runs.
  return &table_[free_.take()];
}

void CallbackCore::release(CallbackEntry& entry) noexcept {
  // Generation 0 means "no ticket".
  if (++entry.generation == 0) entry.generation = 1;
  free_.give_back(entry.index);
}

Status CallbackCore::take(const QueueCore::Transfer& transfer, Slot* slot, GivenCallback given,
                          std::uint64_t tag) noexcept {
  Status why;
  CallbackEntry* const entry = acquire(why);
  if (entry == nullptr) return why;
  entry->request.opcode = transfer.opcode;
  entry->request.local = transfer.local;
  entry->offset_bytes = transfer.offset.bytes;
  entry->length_bytes = transfer.length_bytes;
  entry->memory = transfer.memory;
  return hand_over(*entry, region_->check(*entry, transfer.buffer_valid), slot, given, tag);
}

Status CallbackCore::take(const transport::WorkRequest& request, ByteOffset offset,
                          std::uint64_t length_bytes, GivenCallback given,
                          std::uint64_t tag) noexcept {
  Status why;
  CallbackEntry* const entry = acquire(why);
  if (entry == nullptr) return why;
  entry->request = request;
  entry->offset_bytes = offset.bytes;
  entry->length_bytes = length_bytes;
  entry->memory = nullptr;
  return hand_over(*entry, region_->check(*entry), nullptr, given, tag);
}

Status CallbackCore::hand_over(CallbackEntry& entry, bool sound, Slot* slot, GivenCallback given,
                               std::uint64_t tag) noexcept {
  Status status;
  if (sound) [[likely]] {
    entry.tag = tag;
    if (slot != nullptr) entry.slot = std::move(*slot);
    given.type->move(entry.callable.data(), given.callable);
    entry.type = given.type;
    entry.submitted = Clock::now();
    entry.deadline = deadline_after(entry.submitted, deadline_);
    entry.due.store(entry.deadline.time_since_epoch().count(), std::memory_order_relaxed);
    if (immediate_) {
      carry_out(entry);
      return {};
    }
    OperationList alone;
    alone.append(entry);
    lane().submit(alone);
  } else {
    status = error_of(entry.outcome, operation_name(entry.request.opcode));
    release(entry);
    in_flight_.fetch_sub(1, std::memory_order_acq_rel);
  }
  return status;
}

/// Where the remote memory is mapped: the work is done here, and told of by the poller.
void CallbackCore::carry_out(CallbackEntry& entry) noexcept {
  std::array<OperationRecord*, 1> ring{};
  CompletionSink here{ring};
  entry.sink = &here;
  lane().run(entry, here);
  OperationRecord* before = done_.load(std::memory_order_relaxed);
  do {
    entry.next = before;
  } while (!done_.compare_exchange_weak(before, &entry, std::memory_order_release,
                                        std::memory_order_relaxed));
  // Who pushed on the empty stack has told, or is about to.
  if (before == nullptr) poller_.watcher().tell();
}

bool CallbackCore::serve() noexcept {
  if (size() == 0) return false;
  if (immediate_) {
    OperationRecord* at = done_.exchange(nullptr, std::memory_order_acquire);
    OperationRecord* first = nullptr;
    while (at != nullptr) {
      OperationRecord* const next = std::exchange(at->next, first);
      first = std::exchange(at, next);
    }
    const bool any = first != nullptr;
    while (first != nullptr) end(static_cast<CallbackEntry&>(*std::exchange(first, first->next)));
    return any;
  }
  const auto earliest = [this] { return earliest_deadline(); };
  lane().wait(sink_, 0, DeadlineSource{earliest});
  const std::size_t completed = sink_.ready();
  for (std::size_t i = 0; i < completed; ++i) end(static_cast<CallbackEntry&>(sink_.take()));
  return completed != 0;
}

void CallbackCore::end(CallbackEntry& entry) noexcept {
  entry.due.store(CallbackEntry::kNever, std::memory_order_relaxed);
  // Its room is free before the callback, which may take it.
  in_flight_.fetch_sub(1, std::memory_order_acq_rel);
  call(entry);
  entry.type->destroy(entry.callable.data());
  entry.slot = Slot{};
  release(entry);
}

void CallbackCore::call(CallbackEntry& entry) noexcept {
  Completion completion;
  completion.entry_ = &entry;
  try {
    entry.type->call(entry.callable.data(), completion);
  } catch (const std::exception& thrown) {
    note_exception(thrown.what());
  } catch (...) {
    note_exception("not a std::exception");
  }
}

void CallbackCore::note_exception(const char* what) noexcept {
  region_->session().metrics().callback_threw();
  // A callback that always throws does not fill the log.
  if (std::has_single_bit(++exceptions_))
    log::warn("a callback threw: {} (number {} of its queue)", what, exceptions_);
}

Deadline CallbackCore::earliest_deadline() noexcept {
  const Clock::time_point now = Clock::now();
  if (now < earliest_) return earliest_;
  // What is submitted after the look has the whole of its time.
  earliest_ = deadline_after(now, deadline_);
  for (const CallbackEntry& entry : table_)
    earliest_ = std::min(earliest_,
                         Deadline{Deadline::duration{entry.due.load(std::memory_order_relaxed)}});
  return earliest_;
}

bool CallbackCore::ready() const noexcept {
  if (over()) return true;
  return immediate_ ? done_.load(std::memory_order_acquire) != nullptr : sink_.ready() != 0;
}

Deadline CallbackCore::arm(int epoll) noexcept {
  if (immediate_ || size() == 0) return Deadline::max();
  const auto earliest = [this] { return earliest_deadline(); };
  // One event, then none until it is asked for again: what others do on the lane wakes nobody here
  // while nothing of ours is in flight.
  epoll_event wanted{.events = EPOLLIN | EPOLLONESHOT, .data = {.ptr = this}};
  const int descriptor = lane().event_fd();
  const bool watched = ::epoll_ctl(epoll, EPOLL_CTL_MOD, descriptor, &wanted) == 0 ||
                       ::epoll_ctl(epoll, EPOLL_CTL_ADD, descriptor, &wanted) == 0;
  lane().progress_and_arm(sink_, DeadlineSource{earliest});
  return std::min(earliest_deadline(),
                  Clock::now() + (watched ? kPollerSleepMost : kUnwatchedSleepMost));
}

void CallbackCore::leave(int epoll) noexcept {
  if (immediate_) return;
  // Another queue on the same lane adds it again before it sleeps.
  epoll_event unused{};
  (void)::epoll_ctl(epoll, EPOLL_CTL_DEL, lane().event_fd(), &unused);
  lane().settle_events();
}

/// Ends what has run out of time, by breaking its lane; all of it, when the deadline of the last
/// one has passed.
void CallbackCore::end_overdue() noexcept {
  std::array<OperationRecord*, 1> ring{};
  CompletionSink unused{ring};
  const auto passed = [] { return Deadline::min(); };
  lane().wait(unused, 0, DeadlineSource{passed});
}

void CallbackCore::close(CallbackCore* core) noexcept {
  Poller& poller = core->poller_;
  core->closing_.store(true, std::memory_order_release);
  poller.watcher().tell();
  if (poller.is_this_thread()) {
    log::warn("a callback queue was destroyed by a callback: its operations are not waited for");
    if (!poller.leave_to(*core)) delete core;
    return;
  }
  if (!poller.part_with(*core, deadline_after(core->deadline_) + kEndGrace)) {
    // Its buffers are not touched from here on, whatever keeps the poller.
    core->end_overdue();
    log::warn("a callback blocks its poller: a callback queue is destroyed before its callbacks");
    if (poller.leave_to(*core)) return;
  }
  delete core;
}

void CloseCallbacks::operator()(CallbackCore* core) const noexcept { CallbackCore::close(core); }

}  // namespace remora::detail

namespace remora {

using transport::Opcode;

Result<CallbackQueue> Region::callback_queue(const QueueOptions& options) const {
  auto core = detail::CallbackCore::create(core_, options);
  if (!core) return core.error();
  return CallbackQueue{*core};
}

Status CallbackQueue::read_bytes(ByteOffset from, Target into, Given given,
                                 std::uint64_t tag) noexcept {
  return core_->take(
      {Opcode::kRead, from, into.bytes().data(), into.bytes().size(), into.memory(), into.valid()},
      nullptr, given, tag);
}
Status CallbackQueue::read_slot(ByteOffset from, Slot& into, Given given,
                                std::uint64_t tag) noexcept {
  const Target bytes{into};
  return core_->take({Opcode::kRead, from, bytes.bytes().data(), bytes.bytes().size(),
                      bytes.memory(), bytes.valid()},
                     &into, given, tag);
}
Status CallbackQueue::write_bytes(ByteOffset to, Source from, Given given,
                                  std::uint64_t tag) noexcept {
  // The record has one pointer for both directions; a write's bytes are only read.
  return core_->take({Opcode::kWrite, to, const_cast<std::byte*>(from.bytes().data()),
                      from.bytes().size(), from.memory(), from.valid()},
                     nullptr, given, tag);
}
Status CallbackQueue::write_slot(ByteOffset to, Slot& from, Given given,
                                 std::uint64_t tag) noexcept {
  const Target bytes{from};
  return core_->take({Opcode::kWrite, to, bytes.bytes().data(), bytes.bytes().size(),
                      bytes.memory(), bytes.valid()},
                     &from, given, tag);
}
Status CallbackQueue::zero(ByteOffset at, std::uint64_t length_bytes, Given given,
                           std::uint64_t tag) noexcept {
  return core_->take({.opcode = Opcode::kWriteZeroes}, at, length_bytes, given, tag);
}
Status CallbackQueue::swap(ByteOffset at, std::uint64_t expected, std::uint64_t desired,
                           Given given, std::uint64_t tag) noexcept {
  return core_->take({.compare_or_add = expected, .swap = desired, .opcode = Opcode::kCompareSwap},
                     at, sizeof(std::uint64_t), given, tag);
}
Status CallbackQueue::add(ByteOffset at, std::uint64_t delta, Given given,
                          std::uint64_t tag) noexcept {
  return core_->take({.compare_or_add = delta, .opcode = Opcode::kFetchAdd}, at,
                     sizeof(std::uint64_t), given, tag);
}

ByteOffset CallbackQueue::offset_of(Block block) const noexcept { return core_->offset_of(block); }
std::size_t CallbackQueue::depth() const noexcept { return core_->depth(); }
std::size_t CallbackQueue::size() const noexcept { return core_->size(); }

}  // namespace remora
