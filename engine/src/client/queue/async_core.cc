#include "client/queue/async_core.h"

#include <utility>

#include <remora/assert.h>
#include <remora/engine/region.h>

#include "base/closed.h"
#include "client/datapath/many_pairs.h"
#include "client/queue/executor_core.h"
#include "client/queue/polled_async_core.h"
#include "client/region/region_grant.h"

namespace remora::detail {

namespace {

[[nodiscard]] Operation name_of(AsyncRequest::Kind kind) noexcept {
  switch (kind) {
    case AsyncRequest::Kind::kReadMany: return "read_many";
    case AsyncRequest::Kind::kWriteMany: return "write_many";
    case AsyncRequest::Kind::kFetchAddMany: return "fetch_add_many";
    case AsyncRequest::Kind::kCompareSwapMany: return "compare_swap_many";
    default: return operation_name(opcode_of(kind));
  }
}

[[nodiscard]] Error stopped_before(const AsyncRequest& request) noexcept {
  return Error{Code::kCancelled, name_of(request.kind)}.with_subject(
      "a stop was requested before it was sent");
}

/// Keeps the memory of a waiting request registered, or ends that.
void keep(LocalMemory* memory, bool begins) noexcept {
  if (memory == nullptr || !memory->has_handles()) return;
  begins ? memory->begin_use() : memory->end_use();
}
void keep_all(const AsyncRequest& group, bool begins) noexcept {
  use_pairs(group, [begins](auto pairs) {
    for (const auto& pair : pairs) keep(memory_of(pair), begins);
  });
}

}  // namespace

/// A slot of the operation needs no such use.
void AsyncRequest::begin_wait() noexcept {
  if (!is_group()) return keep(memory, true);
  keeps_memory = true;
  keep_all(*this, true);
}

void AsyncRequest::end_wait() noexcept {
  if (std::exchange(keeps_memory, false)) keep_all(*this, false);
}

AsyncCore::AsyncCore(std::size_t depth, std::chrono::nanoseconds deadline,
                     void (*run)(Resumable& record) noexcept, bool belongs_to_region)
    : deadline_{deadline},
      belongs_to_region_{belongs_to_region},
      records_(depth),
      free_{static_cast<std::uint32_t>(depth)} {
  for (std::size_t i = 0; i < records_.size(); ++i) {
    records_[i].core = this;
    records_[i].index = static_cast<std::uint32_t>(i);
    records_[i].run = run;
  }
}

/// Whether a group may be given to the queue.
Status AsyncCore::check_group(const AsyncRequest& request) const noexcept {
  if (request.pair_count > records_.size())
    return Error{Code::kLimitExceeded, name_of(request.kind)}
        .with_subject("pairs: the depth of the queue")
        .with_limit(request.pair_count, records_.size());
  if (!request.each.empty() && request.each.size() != request.pair_count)
    return Error{Code::kInvalidArgument, name_of(request.kind)}
        .with_subject("each: one outcome a pair")
        .with_limit(request.each.size(), request.pair_count);
  return {};
}

Status AsyncCore::begin(AsyncOperation& operation) noexcept {
  if (operation.request_.is_group())
    if (const Status sound = check_group(operation.request_); !sound) return sound;
  AsyncRecord* taken_record = nullptr;
  if (!has_line()) taken_record = take_records(operation.request_.places());
  if (taken_record == nullptr) {
    wait_in_line(operation);
    return {};
  }
  AsyncRecord& record = *taken_record;
  move_into(record, operation);
  const Status taken = submit(record, Deadline::max());
  if (!taken) {
    record.operation.store(nullptr, std::memory_order_relaxed);
    record.request.slot = Slot{};
    record.inbox = nullptr;
    record.region = nullptr;
    give_back(record);
  }
  return taken;
}

/// From here on the record has all data of the operation, and the frame only waits.
void AsyncCore::move_into(AsyncRecord& record, AsyncOperation& operation) noexcept {
  record.request = std::move(operation.request_);
  record.inbox = operation.inbox_;
  if (belongs_to_region_) record.region = std::move(operation.region_);
  operation.record_ = &record;
  record.operation.store(&operation, std::memory_order_release);
}

void AsyncCore::set_result(AsyncRecord& record, Completion& completion) noexcept {
  record.request.end_wait();
  record.status = completion.ok() ? Status{} : Status{completion.error()};
  record.old_value = completion.old_value();
  record.request.slot = std::move(completion.slot());
}

void AsyncCore::resume(AsyncRecord& record) noexcept {
  // Keeps a queue that belongs to its region until this function ends.
  const OwnedShared<RegionGrant> region = std::move(record.region);
  std::coroutine_handle<> waiter;
  AsyncOperation* const operation = record.operation.exchange(nullptr, std::memory_order_acq_rel);
  if (operation != nullptr) {
    operation->status_ = record.status;
    operation->old_value_ = record.old_value;
    operation->request_.slot = std::move(record.request.slot);
    waiter = operation->waiter_;
  }
  record.request.slot = Slot{};
  record.inbox = nullptr;
  // First the polled queue submits the next operation in line, then the coroutine's own code runs.
  give_back(record);
  if (waiter) waiter.resume();
}

/// Takes free records, chained by `spare`. Null: there are fewer than `count`, and none is taken.
/// The caller then calls submit_from_line(): meanwhile other threads may have found no free record.
AsyncRecord* AsyncCore::take_records(std::size_t count) noexcept {
  AsyncRecord* taken = nullptr;
  for (; count != 0; --count) {
    const std::uint32_t index = free_.take();
    if (index == IndexStack::kNone) {
      if (taken != nullptr) free_records(*taken);
      return nullptr;
    }
    records_[index].spare = std::exchange(taken, &records_[index]);
  }
  return taken;
}

void AsyncCore::free_records(AsyncRecord& first) noexcept {
  for (AsyncRecord* at = &first; at != nullptr;) {
    REMORA_ASSERT_HOT(at->core == this && at == &records_[at->index],
                      "a record goes back to the queue that it came from");
    free_.give_back(std::exchange(at, std::exchange(at->spare, nullptr))->index);
  }
}

void AsyncCore::give_back(AsyncRecord& record) noexcept {
  free_records(record);
  if (waiting_.fetch_add(0, std::memory_order_acq_rel) != 0) serve_line();
}

void AsyncCore::wait_in_line(AsyncOperation& operation) noexcept {
  operation.until_ = deadline_after(deadline_).time_since_epoch().count();
  operation.request_.begin_wait();
  {
    const MutexLock lock{mutex_};
    operation.in_line_ = true;
    operation.before_ = last_;
    operation.behind_ = nullptr;
    (last_ == nullptr ? first_ : last_->behind_) = &operation;
    last_ = &operation;
    waiting_.fetch_add(1, std::memory_order_acq_rel);
  }
  submit_from_line();
}

/// Submits operations in line while there are free records. Runs in any thread, also in one that
/// does not resume these coroutines: an operation that cannot be submitted is handed over.
void AsyncCore::submit_from_line() noexcept {
  if (!has_line()) return;
  Deadline until;
  bool stopped = false;
  while (AsyncRecord* const record = take_first_in_line(until, stopped)) {
    const AsyncRequest::Waited waited{record->request};
    const Status taken = stopped ? Status{stopped_before(record->request)} : submit(*record, until);
    if (taken) continue;
    record->request.end_wait();
    record->status = taken;
    hand_over(*record);
  }
}

/// Returns the record of the first operation in line, or null. Its frame may be destroyed from here
/// on. A group keeps the places that it has got until it has all.
AsyncRecord* AsyncCore::take_first_in_line(Deadline& until, bool& stopped) noexcept {
  const MutexLock lock{mutex_};
  if (first_ == nullptr) return nullptr;
  AsyncOperation& operation = *first_;
  for (; operation.reserved_count_ != operation.request_.places(); ++operation.reserved_count_) {
    const std::uint32_t index = free_.take();
    if (index == IndexStack::kNone) return nullptr;
    records_[index].spare = std::exchange(operation.reserved_, &records_[index]);
  }
  AsyncRecord& record = *leave_line(operation);
  until = Deadline{Deadline::duration{operation.until_}};
  stopped = operation.stop_.stop_requested();
  move_into(record, operation);
  return &record;
}

/// Returns the records that were reserved for the operation, or null.
AsyncRecord* AsyncCore::leave_line(AsyncOperation& operation) noexcept {
  REMORA_ASSERT(operation.in_line_, "an operation leaves the line once");
  AsyncOperation* const before = operation.before_;
  AsyncOperation* const behind = operation.behind_;
  (before == nullptr ? first_ : before->behind_) = behind;
  (behind == nullptr ? last_ : behind->before_) = before;
  operation.in_line_ = false;
  operation.reserved_count_ = 0;
  const std::size_t counted = waiting_.fetch_sub(1, std::memory_order_acq_rel);
  REMORA_ASSERT(counted > 0, "an operation in the line is counted");
  return std::exchange(operation.reserved_, nullptr);
}

void AsyncCore::forget(AsyncOperation& operation) noexcept {
  bool was_in_line = false;
  AsyncRecord* reserved = nullptr;
  {
    const MutexLock lock{mutex_};
    if (operation.in_line_) {
      const AsyncRequest::Waited waited{operation.request_};
      operation.request_.end_wait();
      was_in_line = true;
      reserved = leave_line(operation);
    }
  }
  if (reserved != nullptr) give_back(*reserved);
  if (was_in_line) return;
  AsyncOperation* expected = &operation;
  (void)operation.record_->operation.compare_exchange_strong(
      expected, nullptr, std::memory_order_acq_rel, std::memory_order_relaxed);
}

AsyncOperation::AsyncOperation(const AsyncRegion& in, AsyncRequest&& request) noexcept
    : request_{std::move(request)},
      region_{in.queue_ == nullptr ? in.region_ : decltype(in.region_){}},
      queue_{in.queue_},
      stop_{in.stop_} {}

AsyncOperation::~AsyncOperation() {
  if (taken_by_ != nullptr) taken_by_->forget(*this);
  if (inbox_ != nullptr) inbox_->end_await();
}

bool AsyncOperation::await_suspend(std::coroutine_handle<> waiter) noexcept {
  waiter_ = waiter;
  if (queue_ == nullptr && region_ == nullptr) [[unlikely]] {
    status_ = closed_handle("co_await", queue_.foreign() || region_.foreign());
    return false;
  }
  if (stop_.stop_requested()) [[unlikely]] {
    status_ = stopped_before(request_);
    return false;
  }
  if (request_.is_group() && request_.pair_count == 0 && request_.each.empty()) [[unlikely]] {
    status_ = Status{};
    return false;
  }
  const Status taken = queue_ != nullptr ? begin_on_queue() : begin_on_region();
  if (taken) return true;  // this object may have been destroyed
  status_ = taken;
  return false;
}

/// Begins an operation of Region::async(): the Executor of the thread drives it, or a poller if
/// there is none.
Status AsyncOperation::begin_on_region() noexcept {
  if (ExecutorCore* const executor = ExecutorCore::current()) {
    auto queue = executor->queue_of(region_.pointer());
    return queue ? begin_on(**queue) : Status{queue.error()};
  }
  // Once the operation is taken, this object may be destroyed, and with it the last other reference
  // to the region.
  const std::shared_ptr<RegionGrant> region = region_.pointer();
  auto queue = PolledAsyncCore::of_region(*region);
  return queue ? begin_on(**queue) : Status{queue.error()};
}

/// Begins an operation of an AsyncQueue, which a poller drives. The Executor of the thread resumes
/// the coroutine; if there is none, the queue's Resume says where it is resumed.
Status AsyncOperation::begin_on_queue() noexcept {
  if (ExecutorCore* const executor = ExecutorCore::current()) {
    auto inbox = executor->inbox();
    if (!inbox) return inbox.error();
    inbox_ = std::move(*inbox);
    inbox_->begin_await();
  }
  // Once the operation is taken, this object may be destroyed, and with it the last other reference
  // to the queue.
  const std::shared_ptr<PolledAsyncCore> queue = queue_.pointer();
  return begin_on(*queue);
}

Status AsyncOperation::begin_on(AsyncCore& core) noexcept {
  taken_by_ = &core;
  const Status taken = core.begin(*this);
  if (!taken) taken_by_ = nullptr;
  return taken;
}

Status AsyncOperation::end() noexcept {
  taken_by_ = nullptr;
  if (inbox_ != nullptr) std::exchange(inbox_, nullptr)->end_await();
  return status_;
}

}  // namespace remora::detail

namespace remora {

ByteOffset AsyncRegion::offset_of(Block block) const noexcept {
  return region_ == nullptr ? ByteOffset{0} : detail::offset_of(block, region_->info());
}

AsyncRegion Region::async() const noexcept { return {core_, nullptr}; }

}  // namespace remora
