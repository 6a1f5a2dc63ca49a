#include <algorithm>
#include <bit>
#include <exception>
#include <new>
#include <sys/epoll.h>
#include <utility>

#include <remora/assert.h>
#include <remora/engine/callback_queue.h>
#include <remora/engine/region.h>

#include "base/closed.h"
#include "base/log.h"
#include "client/datapath/end_tally.h"
#include "client/datapath/mapped_access.h"
#include "client/queue/callback_core.h"
#include "client/services/engine_services.h"
#include "client/services/poller.h"
#include "client/session/session_core.h"

namespace remora::detail {

namespace {
/// Time after its deadline within which an operation ends.
constexpr std::chrono::seconds kEndGrace{2};
/// A poller checks a lane with operations in flight at least this often.
constexpr std::chrono::milliseconds kMaxPollerSleep{100};
/// As kMaxPollerSleep, for a lane that cannot wake the poller.
constexpr std::chrono::milliseconds kMaxUnwatchedSleep{1};
}  // namespace

Result<Poller*> CallbackCore::poller_for(const RegionGrant& region, const QueueOptions& options) {
  if (options.depth == 0 || options.depth > kMaxQueueDepth)
    return Error{Code::kInvalidArgument, "callback_queue"}.with_subject("depth").with_limit(
        options.depth, kMaxQueueDepth);
  if (region.session().ended())
    return region.named(
        Error{Code::kConnectionLost, "callback_queue"}.with_reason(region.session().lost_reason()));
  return region.session().engine().poller();
}

Result<CallbackCore*> CallbackCore::create(std::shared_ptr<RegionGrant> region,
                                           const QueueOptions& options) {
  try {
    auto poller = poller_for(*region, options);
    if (!poller) return poller.error();
    auto core = std::make_unique<CallbackCore>(std::move(region), **poller, options);
    (*poller)->add(*core);
    return core.release();
  } catch (const std::bad_alloc&) {
    return Error{Code::kOutOfMemory, "callback_queue"};
  }
}

CallbackCore::CallbackCore(std::shared_ptr<RegionGrant> region, Poller& poller,
                           const QueueOptions& options)
    : region_{std::move(region)},
      lane_{region_->lane_for_queue()},
      poller_{poller},
      deadline_{options.deadline > options.deadline.zero()
                    ? options.deadline
                    : region_->session().engine().options().operation_deadline},
      depth_{options.depth},
      immediate_{lane().event_fd() < 0},
      table_(depth_ + 1),
      memory_named_{region_->session().releaser_of(lane_), table_},
      free_{static_cast<std::uint32_t>(depth_ + 1)},
      ring_(std::bit_ceil(depth_)),
      sink_{ring_, this} {
  for (std::size_t i = 0; i < table_.size(); ++i) {
    table_[i].ticket = Ticket{static_cast<std::uint32_t>(i), 0};
    table_[i].sink = &sink_;
  }
  sink_.watch(poller.notifier());
}

/// Returns a place for one more operation; null: `why` has the reason.
CallbackEntry* CallbackCore::acquire(Status& why) noexcept {
  std::uint64_t before = in_flight_.load(std::memory_order_relaxed);
  do {
    if ((before & kClosing) != 0) [[unlikely]] {
      why = Error{Code::kClosed, "callback_queue"};
      return nullptr;
    }
    if ((before & kCount) >= depth_) [[unlikely]] {
      why =
          region_->named(Error{Code::kWouldBlock, "callback_queue"}.with_limit(depth_ + 1, depth_));
      return nullptr;
    }
  } while (!in_flight_.compare_exchange_weak(before, before + 1, std::memory_order_acq_rel,
                                             std::memory_order_relaxed));
  // The first operation in flight wakes the poller, which does not poll the lane until then. It is
  // woken at once, since operations that other threads add meanwhile are not the first.
  if ((before & kCount) == 0 && !immediate_) poller_.notifier().notify();
  // There is a free place: the table has one more place than operations may be in flight, for the
  // operation whose callback runs.
  const std::uint32_t place = free_.take();
  REMORA_ASSERT_HOT(place < table_.size(), "a queue with room has a free place");
  CallbackEntry& entry = table_[place];
  entry.ticket = entry.ticket.next();
  return &entry;
}

void CallbackCore::give_back(CallbackEntry& entry) noexcept {
  free_.give_back(entry.ticket.index());
}

Status CallbackCore::take_transfer(const QueueCore::Transfer& transfer, Slot* slot,
                                   GivenCallback given, std::uint64_t tag,
                                   Deadline until) noexcept {
  Status why;
  CallbackEntry* const entry = acquire(why);
  if (entry == nullptr) return why;
  entry->request.opcode = transfer.opcode;
  entry->request.local = transfer.local;
  entry->offset_bytes = transfer.offset.bytes;
  entry->length_bytes = transfer.length_bytes;
  entry->name_memory(transfer.memory);
  return hand_over(*entry, region_->check(*entry), slot, given, tag, until);
}

Status CallbackCore::take(const transport::WorkRequest& request, ByteOffset offset,
                          std::uint64_t length_bytes, GivenCallback given, std::uint64_t tag,
                          Deadline until) noexcept {
  Status why;
  CallbackEntry* const entry = acquire(why);
  if (entry == nullptr) return why;
  entry->request = request;
  entry->offset_bytes = offset.bytes;
  entry->length_bytes = length_bytes;
  entry->name_memory(nullptr);
  return hand_over(*entry, region_->check_on(*entry, lane_), nullptr, given, tag, until);
}

/// Acquires a lease for memory without a registration, if the operation gains by it. False: the
/// deadline has passed meanwhile, or the grant was revoked.
bool CallbackCore::acquire_lease(CallbackEntry& entry) noexcept {
  // If a poller pinned pages, its other queues would wait.
  const auto which = poller_.is_this_thread() ? LaneDriver::Lease::kOld : LaneDriver::Lease::kNew;
  if (!lane().acquire_lease(entry, which)) return true;
  // Pinning pages may take longer than a revocation waits for operations.
  const Reason revoked = region_->revoked();
  if (revoked == Reason::kNone && Clock::now() < entry.deadline) return true;
  lane().release_lease(entry);
  entry.outcome = revoked == Reason::kNone ? Outcome::failure(Code::kTimedOut, Reason::kExpired)
                                           : Outcome::failure(Code::kAccessRefused, revoked);
  EndTally{region_->session().metrics()}.add(entry);
  return false;
}

Status CallbackCore::hand_over(CallbackEntry& entry, bool sound, Slot* slot, GivenCallback given,
                               std::uint64_t tag, Deadline until) noexcept {
  Status status;
  entry.submitted = Clock::now();
  if (sound && entry.submitted >= until) [[unlikely]] {
    sound = false;
    entry.outcome = Outcome::failure(Code::kTimedOut, Reason::kExpired);
    EndTally{region_->session().metrics()}.add(entry);
  }
  entry.deadline = std::min(deadline_after(entry.submitted, deadline_), until);
  if (sound && !entry.whole && !acquire_lease(entry)) [[unlikely]]
    sound = false;
  if (sound) [[likely]] {
    entry.tag = tag;
    if (slot != nullptr) entry.slot = std::move(*slot);
    given.type->move(entry.callable.data(), given.callable);
    entry.type = given.type;
    const Deadline::rep due = entry.deadline.time_since_epoch().count();
    entry.due.store(due, std::memory_order_relaxed);
    if (until != Deadline::max()) lower_earliest(due);
    if (immediate_) {
      carry_out(entry);
      return {};
    }
    OperationList single;
    single.append(entry);
    lane().submit(single);
  } else {
    status = error_of(entry);
    entry.name_memory(nullptr);
    give_back(entry);
    // A thread in close() may wait only for this operation: after the fetch_sub() it may destroy
    // the queue and the engine, so the notifier is kept here.
    const std::shared_ptr<EventNotifier> notifier = poller_.share_notifier();
    if (in_flight_.fetch_sub(1, std::memory_order_acq_rel) == kClosing + 1) notifier->notify();
  }
  return status;
}

/// For mapped remote memory: this thread carries the operation out, and the poller runs the
/// callback.
void CallbackCore::carry_out(CallbackEntry& entry) noexcept {
  bool ended = true;
  {
    const MappedAccess access{region_->serial()};
    if (const Reason why = region_->revoked(); why != Reason::kNone) [[unlikely]] {
      entry.outcome = Outcome::failure(Code::kAccessRefused, why);
      EndTally{region_->session().metrics()}.add(entry);
    } else {
      ended = lane().try_run(entry);
    }
  }
  if (ended) [[likely]]
    push_done(entry);
  else
    poller_.notifier().notify();
}

/// Hands an operation that has ended in this thread to the poller, which runs the callback.
void CallbackCore::push_done(CallbackEntry& entry) noexcept {
  OperationRecord* before = done_.load(std::memory_order_relaxed);
  do {
    entry.next = before;
  } while (!done_.compare_exchange_weak(before, &entry, std::memory_order_release,
                                        std::memory_order_relaxed));
  // If the stack was not empty, the thread that pushed first has notified the poller, or is about
  // to.
  if (before == nullptr) poller_.notifier().notify();
}

/// Ends the operations that push_done() has pushed. Returns whether there were any.
bool CallbackCore::serve_done() noexcept {
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

bool CallbackCore::serve() noexcept {
  if (size() == 0) return false;
  // Also if the lane completes operations, since refused pairs are on the stack.
  const bool any = (immediate_ || done_.load(std::memory_order_relaxed) != nullptr) && serve_done();
  const auto earliest = [this] { return earliest_deadline(); };
  lane().wait(sink_, 0, DeadlineSource{earliest});
  const std::size_t completed = sink_.ready();
  for (std::size_t left = completed; left != 0;) {
    auto [at, count] = sink_.take_run();
    left -= count;
    for (; count != 0; --count) end(static_cast<CallbackEntry&>(*std::exchange(at, at->next)));
  }
  return any || completed != 0;
}

void CallbackCore::end(CallbackEntry& entry) noexcept {
  entry.due.store(CallbackEntry::kNever, std::memory_order_relaxed);
  entry.name_memory(nullptr);
  if (entry.group.head != nullptr) [[unlikely]]
    return end_of_pair(entry);
  // The operation no longer counts while its callback runs, which may submit another one.
  const std::uint64_t before = in_flight_.fetch_sub(1, std::memory_order_acq_rel);
  REMORA_ASSERT_HOT((before & kCount) != 0, "an operation in flight ends once");
  call(entry);
  entry.type->destroy(entry.callable.data());
  entry.slot = Slot{};
  give_back(entry);
}

void CallbackCore::call(CallbackEntry& entry) noexcept {
  Completion completion;
  completion.entry_ = &entry;
  completion.ok_ = entry.outcome.ok;
  try {
    entry.type->call(entry.callable.data(), completion);
  } catch (const std::exception& thrown) {
    log_exception(thrown.what());
  } catch (...) {
    log_exception("not a std::exception");
  }
}

void CallbackCore::log_exception(const char* what) noexcept {
  region_->session().metrics().callback_threw();
  // A callback that always throws must not fill the log.
  if (std::has_single_bit(++exceptions_))
    log::warn({"callback.threw", "reason exceptions"},
              "a callback threw: {} (number {} of its queue)", what, exceptions_);
}

Deadline CallbackCore::earliest_deadline() noexcept {
  const auto known = [this] {
    return Deadline{Deadline::duration{earliest_.load(std::memory_order_relaxed)}};
  };
  const Clock::time_point now = Clock::now();
  if (now < known()) return known();
  // An operation that is submitted after this check has its whole time, or lowers earliest_ itself.
  // An exchange instead of a store, so that this thread sees the operations that have lowered
  // earliest_ before.
  earliest_.exchange(deadline_after(now, deadline_).time_since_epoch().count(),
                     std::memory_order_acq_rel);
  for (const CallbackEntry& entry : table_)
    if (const auto due = entry.due.load(std::memory_order_relaxed); due != CallbackEntry::kNever)
      lower_earliest(due);
  return known();
}

void CallbackCore::lower_earliest(Deadline::rep due) noexcept {
  Deadline::rep known = earliest_.load(std::memory_order_relaxed);
  while (!earliest_.compare_exchange_weak(known, std::min(known, due), std::memory_order_acq_rel,
                                          std::memory_order_relaxed)) {
  }
}

bool CallbackCore::ready() const noexcept {
  if (over()) return true;
  return sink_.ready() != 0 || done_.load(std::memory_order_acquire) != nullptr;
}

Deadline CallbackCore::arm(int epoll) noexcept {
  if (size() == 0) return Deadline::max();
  const auto earliest = [this] { return earliest_deadline(); };
  if (immediate_) {
    lane().progress_and_arm(sink_, DeadlineSource{earliest});
    return earliest_deadline();
  }
  // One event, then none until the next arm(), so that completions of other queues of the lane do
  // not wake this poller while this queue has nothing in flight.
  epoll_event wanted{.events = EPOLLIN | EPOLLONESHOT, .data = {.ptr = this}};
  const int descriptor = lane().event_fd();
  const bool watched = ::epoll_ctl(epoll, EPOLL_CTL_MOD, descriptor, &wanted) == 0 ||
                       ::epoll_ctl(epoll, EPOLL_CTL_ADD, descriptor, &wanted) == 0;
  lane().progress_and_arm(sink_, DeadlineSource{earliest});
  const Deadline sleep_until = Clock::now() + (watched ? kMaxPollerSleep : kMaxUnwatchedSleep);
  // Operations that are past their deadlines end with the lane, in another thread.
  return lane().ending() ? sleep_until : std::min(earliest_deadline(), sleep_until);
}

void CallbackCore::leave(int epoll) noexcept {
  if (immediate_) return;
  // Another queue of the same lane adds the descriptor again before it sleeps.
  epoll_event unused{};
  (void)::epoll_ctl(epoll, EPOLL_CTL_DEL, lane().event_fd(), &unused);
  lane().settle_events();
}

/// Ends operations that are past their deadlines by breaking the lane: all operations, if the last
/// deadline has passed.
void CallbackCore::end_overdue() noexcept {
  std::array<CompletionSink::Run, 1> ring{};
  CompletionSink unused{ring};
  const auto passed = [] { return Deadline::min(); };
  lane().wait(unused, 0, DeadlineSource{passed});
  lane().end_broken_lane();
}

bool CallbackCore::hold() noexcept {
  // The poller's own thread still serves this queue, unless gone() is true, which only that thread
  // sets.
  if (in_flight_.fetch_add(kHold, std::memory_order_acq_rel) != kClosing ||
      (poller_.is_this_thread() && !gone()))
    return true;
  let_go();
  return false;
}

void CallbackCore::let_go() noexcept {
  std::uint64_t before = in_flight_.load(std::memory_order_relaxed);
  while ((before & kClosing) == 0)
    if (in_flight_.compare_exchange_weak(before, before - kHold, std::memory_order_acq_rel,
                                         std::memory_order_relaxed))
      return;
  // A thread in close() may wait only for this hold: after the fetch_sub() it may destroy the queue
  // and the engine, so the notifier is kept here.
  const std::shared_ptr<EventNotifier> notifier = poller_.share_notifier();
  const std::uint64_t held = in_flight_.fetch_sub(kHold, std::memory_order_acq_rel);
  REMORA_ASSERT((held & ~kClosing) >= kHold, "only what holds a queue lets it go");
  notifier->notify();
}

void CallbackCore::abandon() noexcept {
  in_flight_.fetch_or(kClosing, std::memory_order_acq_rel);
  poller_.notifier().notify();
}

void CallbackCore::close() noexcept {
  abandon();
  if (poller_.is_this_thread()) {
    log::warn({"queue.destroyed_on_poller"},
              "a queue was destroyed on its own poller: its operations are not waited for");
  } else if (!poller_.part_with(*this, deadline_after(deadline_) + kEndGrace)) {
    // After this the lane does not access the queue's buffers, however long the poller is blocked.
    end_overdue();
    log::warn({"queue.poller_blocked"},
              "a poller is blocked: a queue is destroyed before its callbacks");
  }
}

void CloseCallbacks::operator()(CallbackCore* core) const noexcept {
  core->close();
  core->drop();
}

}  // namespace remora::detail

namespace remora {

using detail::closed;
using transport::Opcode;

Result<CallbackQueue> Region::callback_queue(const QueueOptions& options) const {
  if (core_ == nullptr) return closed("callback_queue", core_);
  auto core = detail::CallbackCore::create(core_.pointer(), options);
  if (!core) return core.error();
  return CallbackQueue{*core};
}

Status CallbackQueue::read_bytes(ByteOffset from, Target into, Given given,
                                 std::uint64_t tag) noexcept {
  if (core_ == nullptr) [[unlikely]]
    return closed("read", core_);
  return core_->take_transfer(
      {Opcode::kRead, from, into.bytes().data(), into.bytes().size(), into.memory()}, nullptr,
      given, tag);
}
Status CallbackQueue::read_slot(ByteOffset from, Slot& into, Given given,
                                std::uint64_t tag) noexcept {
  if (core_ == nullptr) [[unlikely]]
    return closed("read", core_);
  const Target bytes{into};
  return core_->take_transfer(
      {Opcode::kRead, from, bytes.bytes().data(), bytes.bytes().size(), bytes.memory()}, &into,
      given, tag);
}
Status CallbackQueue::write_bytes(ByteOffset to, Source from, Given given,
                                  std::uint64_t tag) noexcept {
  if (core_ == nullptr) [[unlikely]]
    return closed("write", core_);
  // The record has one pointer for both directions; a write's bytes are only read.
  return core_->take_transfer({Opcode::kWrite, to, const_cast<std::byte*>(from.bytes().data()),
                               from.bytes().size(), from.memory()},
                              nullptr, given, tag);
}
Status CallbackQueue::write_slot(ByteOffset to, Slot& from, Given given,
                                 std::uint64_t tag) noexcept {
  if (core_ == nullptr) [[unlikely]]
    return closed("write", core_);
  const Target bytes{from};
  return core_->take_transfer(
      {Opcode::kWrite, to, bytes.bytes().data(), bytes.bytes().size(), bytes.memory()}, &from,
      given, tag);
}
Status CallbackQueue::zero(ByteOffset at, std::uint64_t length_bytes, Given given,
                           std::uint64_t tag) noexcept {
  if (core_ == nullptr) [[unlikely]]
    return closed("write_zeroes", core_);
  return core_->take({.opcode = Opcode::kWriteZeroes}, at, length_bytes, given, tag);
}
Status CallbackQueue::swap(ByteOffset at, std::uint64_t expected, std::uint64_t desired,
                           Given given, std::uint64_t tag) noexcept {
  if (core_ == nullptr) [[unlikely]]
    return closed("compare_swap", core_);
  return core_->take(transport::WorkRequest::compare_swap(expected, desired), at,
                     sizeof(std::uint64_t), given, tag);
}
Status CallbackQueue::add(ByteOffset at, std::uint64_t delta, Given given,
                          std::uint64_t tag) noexcept {
  if (core_ == nullptr) [[unlikely]]
    return closed("fetch_add", core_);
  return core_->take(transport::WorkRequest::fetch_add(delta), at, sizeof(std::uint64_t), given,
                     tag);
}

ByteOffset CallbackQueue::offset_of(Block block) const noexcept {
  return core_.pointer() == nullptr ? ByteOffset{0} : core_->offset_of(block);
}
std::size_t CallbackQueue::depth() const noexcept { return core_ == nullptr ? 0 : core_->depth(); }
std::size_t CallbackQueue::size() const noexcept { return core_ == nullptr ? 0 : core_->size(); }

}  // namespace remora
