/// The functions that a queue rarely runs: it is made and destroyed, selects regions, cancels
/// operations, holds them behind a barrier, and refuses those of revoked grants. queue.cc has the
/// path of each operation.

#include "client/queue/queue_core.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <new>
#include <sys/epoll.h>
#include <utility>

#include <remora/assert.h>
#include <remora/engine/queue.h>

#include "client/datapath/end_tally.h"
#include "client/services/engine_services.h"
#include "client/session/session_core.h"

namespace remora::detail {

namespace {
/// How long an event loop may sleep while a broken lane ends; the event descriptor wakes it
/// earlier.
constexpr std::chrono::milliseconds kBrokenLaneSleep{100};
}  // namespace

Result<std::unique_ptr<QueueCore>> QueueCore::create(std::shared_ptr<RegionGrant> region,
                                                     const QueueOptions& options) {
  if (options.depth == 0 || options.depth > kMaxQueueDepth)
    return Error{Code::kInvalidArgument, "queue"}.with_subject("depth").with_limit(options.depth,
                                                                                   kMaxQueueDepth);
  if (region->session().ended())
    return region->named(
        Error{Code::kConnectionLost, "queue"}.with_reason(region->session().lost_reason()));
  const auto deadline = options.deadline > options.deadline.zero()
                            ? options.deadline
                            : region->session().engine().options().operation_deadline;
  try {
    return std::make_unique<QueueCore>(std::move(region), options.depth, deadline);
  } catch (const std::bad_alloc&) {
    return Error{Code::kOutOfMemory, "queue"};
  }
}

QueueCore::QueueCore(std::shared_ptr<RegionGrant> region, std::size_t depth,
                     std::chrono::nanoseconds deadline)
    : room_{.depth = depth, .left = depth},
      region_{region.get()},
      lane_{region->lane_for_queue()},
      deadline_{deadline},
      table_(2 * depth),
      memory_named_{region_->session().releaser_of(lane_), table_},
      free_{table_.data()},
      filled_{.first = free_},
      order_{lane_, depth},
      ring_(std::bit_ceil(depth)),
      sink_{ring_, this},
      ready_{new Completion[depth]} {
  regions_.emplace(region_, std::move(region));
  region_->add_queue(*this);
  for (std::size_t i = 0; i < table_.size(); ++i) {
    table_[i].ticket = Ticket{static_cast<std::uint32_t>(i), 0};
    table_[i].next = i + 1 < table_.size() ? &table_[i + 1] : nullptr;
    table_[i].deadline = Deadline::max();
    table_[i].sink = &sink_;
  }
}

QueueCore::~QueueCore() {
  for (const auto& [region, kept] : regions_) kept->remove_queue(*this);
  const auto earliest = [this] { return earliest_deadline(); };
  if (in_flight_ > 0) lane_.wait(sink_, in_flight_, DeadlineSource{earliest});
  REMORA_ASSERT(sink_.ready() == in_flight_, "a queue goes when all its operations have ended");
  while (!held_.empty())
    if (OperationRecord& operation = held_.take_first(); !operation.whole)
      lane_.release_lease(operation);
  if (event_) lane_.settle_events();
}

Status QueueCore::select(const std::shared_ptr<RegionGrant>& region) noexcept {
  if (&region->session() != &region_->session())
    return Error{Code::kInvalidArgument, "select"}.with_subject("a region of another session");
  try {
    if (regions_.try_emplace(region.get(), region).second) region->add_queue(*this);
  } catch (const std::bad_alloc&) {
    return Error{Code::kOutOfMemory, "select"};
  }
  region_ = region.get();
  return {};
}

Error not_the_owner(Operation operation) noexcept {
  return Error{Code::kBusy, operation}.with_subject("another thread is in a call of this queue");
}

/// Returns whether registrations may have been made, which takes time.
bool QueueCore::acquire_leases(OperationList& filled) noexcept {
  bool any = false;
  for (OperationRecord* at = filled.first; at != nullptr; at = at->next)
    if (!at->whole) any = lane_.acquire_lease(*at, LaneDriver::Lease::kNew) || any;
  return any;
}

/// Submits operations that no barrier holds back any more.
void QueueCore::hand_over_held() noexcept {
  while (!held_.empty()) {
    const bool clear = sink_.ready() == in_flight_;
    if (entry_of(held_.first)->after_barrier && !clear) return;
    const Clock::time_point now = Clock::now();
    OperationList segment;
    do {
      OperationRecord& operation = held_.take_first();
      entry_of(&operation)->after_barrier = false;
      if (operation.deadline <= now)
        refuse(operation, Outcome::failure(Code::kTimedOut, Reason::kExpired));
      else
        segment.append(operation);
    } while (!held_.empty() && !entry_of(held_.first)->after_barrier);
    if (segment.empty()) continue;
    segment.first->follows = false;
    hand_over(segment);
  }
}

/// Ends an operation that was never submitted to the lane.
void QueueCore::refuse(OperationRecord& operation, const Outcome& outcome) noexcept {
  if (!operation.whole) lane_.release_lease(operation);
  operation.outcome = outcome;
  EndTally{region_->session().metrics()}.add(operation);
  keep_refused(operation);
}

Error QueueCore::error_of(const OperationRecord& operation) const noexcept {
  const RegionGrant* of = region_;
  for (const auto& [region, kept] : regions_)
    if (regions_.size() == 1 || region->owns(operation)) of = region;
  return error_in_group(of->error_of(operation), *of, static_cast<const QueueEntry&>(operation));
}

/// Keeps an operation that can be handed out, and notifies the application's event loop.
void QueueCore::keep_refused(OperationRecord& operation) noexcept {
  refused_.append(operation);
  if (event_) event_.notify();
}

void QueueCore::barrier() noexcept {
  // Without an operation before it, a barrier has no effect.
  barrier_ = barrier_ || filled_.count + held_.count + in_flight_ > 0;
}

/// Puts a barrier before `operation`; null: before the operation that is taken next.
void QueueCore::put_barrier_before(OperationRecord* operation) noexcept {
  if (operation == nullptr) {
    barrier_ = true;
    return;
  }
  entry_of(operation)->after_barrier = filled_.any_barrier = true;
}

/// Refuses the operations that are held back or not submitted and for which `find` returns an
/// outcome that is not ok. Returns their number. The queue's owner calls it, in a call.
template <typename Find>
std::size_t QueueCore::refuse_unposted(Find find) noexcept {
  // A barrier before a refused operation moves to the next operation that stays.
  bool barrier_before_next = false;
  std::size_t count = 0;
  const auto refuse_in = [&](OperationList& list) {
    Outcome found;
    list.extract(
        [&](OperationRecord& operation) {
          found = find(operation);
          if (found.ok && std::exchange(barrier_before_next, false)) put_barrier_before(&operation);
          return !found.ok;
        },
        [&](OperationRecord& operation) {
          barrier_before_next =
              std::exchange(entry_of(&operation)->after_barrier, false) || barrier_before_next;
          refuse(operation, found);
          ++count;
        });
  };
  refuse_in(held_);
  OperationList filled = detach_filled();
  refuse_in(filled);
  attach_filled(filled);
  barrier_ = barrier_ || barrier_before_next;
  return count;
}

Status QueueCore::cancel(Ticket ticket) noexcept {
  const Call call{*this};
  if (!call) return not_the_owner("cancel");
  const Error unknown = Error{Code::kNotFound, "cancel"}.with_subject("ticket");
  if (!ticket || ticket.index() >= table_.size()) return unknown;
  QueueEntry& entry = table_[ticket.index()];
  if (entry.ticket != ticket) return unknown;
  // Cancels all pairs of a group that have not ended, or none. The head's own pair may have ended.
  if (entry.group.head != nullptr || entry.group.left_count != 0) {
    const auto of_group = [&](OperationRecord& operation) {
      return entry_of(&operation)->group.head == &entry ? Outcome::failure(Code::kCancelled)
                                                        : Outcome{};
    };
    if (refuse_unposted(of_group) != 0) return {};
    return Error{Code::kBusy, "cancel"}.with_subject("posted");
  }
  OperationRecord* after = nullptr;
  OperationList filled = detach_filled();
  const bool held = held_.remove(entry, &after);
  const bool removed = held || filled.remove(entry, &after);
  if (removed && std::exchange(entry.after_barrier, false))
    put_barrier_before(after != nullptr ? after : held ? filled.first : nullptr);
  attach_filled(filled);
  if (removed) {
    refuse(entry, Outcome::failure(Code::kCancelled));
    return {};
  }
  if (refused_.contains(entry)) return Error{Code::kBusy, "cancel"}.with_subject("ended");
  // If the caller has its completion, the operation has ended.
  if (entry.deadline == Deadline::max()) return unknown;
  if (lane_.cancel(entry)) return {};
  return Error{Code::kBusy, "cancel"}.with_subject("posted");
}

Deadline QueueCore::earliest_deadline() const noexcept {
  // Deadlines of a queue only grow, so the last result is right until it has passed.
  if (Clock::now() < earliest_) return earliest_;
  earliest_ = Deadline::max();
  for (const QueueEntry& entry : table_) earliest_ = std::min(earliest_, entry.deadline);
  return earliest_;
}

Deadline QueueCore::next_deadline() const noexcept {
  if (in_flight_ + held_.count == 0) return Deadline::max();
  const Deadline earliest = earliest_deadline();
  // Operations that are past their deadlines end with the lane, in another thread.
  return lane_.ending() ? std::max(earliest, Clock::now() + kBrokenLaneSleep) : earliest;
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
  // The descriptor also reports completions before this call, and before the first progress().
  signal_event(event_.event());
  return epoll_.get();
}

std::atomic<QueueCore::CallState>* QueueCore::enter_unless_taken(CallState before) noexcept {
  if (before == kInCall) return nullptr;  // another thread is in a call
  refuse_revoked();
  return &in_call_;
}

bool QueueCore::request_refusal() noexcept {
  CallState before = kIdle;
  return in_call_.compare_exchange_strong(before, CallState::kRefuseRevoked,
                                          std::memory_order_acq_rel) ||
         before == CallState::kRefuseRevoked;
}

void QueueCore::refuse_revoked() noexcept {
  (void)refuse_unposted([this](const OperationRecord& operation) {
    const Reason why = region_->session().revocations().revoked(operation);
    return why == Reason::kNone ? Outcome{} : Outcome::failure(Code::kAccessRefused, why);
  });
}

}  // namespace remora::detail
