#include "client/queue/async_core.h"

#include <new>
#include <utility>

#include <remora/engine/region.h>

#include "base/closed.h"
#include "base/log.h"
#include "client/datapath/arena.h"
#include "client/queue/executor_core.h"
#include "client/services/engine_services.h"
#include "client/session/session_core.h"

namespace remora::detail {

namespace {
/// The queue whose close() waits for the coroutine that runs in this thread.
thread_local const AsyncCore* t_going_on = nullptr;

void drop_core(AsyncCore* core) noexcept { core->drop(); }
}  // namespace

Result<std::shared_ptr<AsyncCore>> AsyncCore::create(std::shared_ptr<RegionGrant> region,
                                                     const QueueOptions& options,
                                                     const Resume& resume) {
  try {
    auto poller = poller_for(*region, options);
    if (!poller) return poller.error();
    std::shared_ptr<JobThreads> arena;
    if (resume.on_arena_) {
      auto made = region->session().engine().arena();
      if (!made) return made.error();
      arena = std::move(*made);
    }
    auto made =
        std::make_unique<AsyncCore>(std::move(region), **poller, options, resume, std::move(arena));
    const std::shared_ptr<AsyncCore> core{made.release(), &drop_core};
    (*poller)->add(*core);
    return core;
  } catch (const std::bad_alloc&) {
    return Error{Code::kOutOfMemory, "async_queue"};
  }
}

AsyncCore::AsyncCore(std::shared_ptr<RegionGrant> region, Poller& poller,
                     const QueueOptions& options, const Resume& resume,
                     std::shared_ptr<JobThreads> arena)
    : CallbackCore{std::move(region), poller, options},
      resume_{resume},
      arena_{std::move(arena)},
      records_(options.depth),
      free_{static_cast<std::uint32_t>(options.depth)} {
  for (std::size_t i = 0; i < records_.size(); ++i) {
    records_[i].core = this;
    records_[i].index = static_cast<std::uint32_t>(i);
    records_[i].run = &AsyncCore::run_record;
  }
}

Status AsyncCore::take(AsyncOperation& operation) noexcept {
  std::uint32_t index = IndexStack::kNone;
  if (waiting_.load(std::memory_order_relaxed) == 0) index = free_.take();
  if (index == IndexStack::kNone) {
    line_up(operation);
    return {};
  }
  AsyncRecord& record = records_[index];
  settle_in(operation, record);
  const Status taken = submit(record, Deadline::max());
  if (!taken) {
    record.operation.store(nullptr, std::memory_order_relaxed);
    record.request.slot = Slot{};
    give_back(record);
  }
  return taken;
}

/// From here on the record has all that there is to do; the frame only waits.
void AsyncCore::settle_in(AsyncOperation& operation, AsyncRecord& record) noexcept {
  record.request = std::move(operation.request_);
  operation.record_ = &record;
  record.operation.store(&operation, std::memory_order_release);
}

Status AsyncCore::submit(AsyncRecord& record, Deadline until) noexcept {
  const auto told = [&record](Completion& completion) { record.core->ended(record, completion); };
  return record.request.give_to(static_cast<CallbackCore&>(*this),
                                detail::give<decltype(told)&>(told), std::uint64_t{0}, until);
}

/// On the poller.
void AsyncCore::ended(AsyncRecord& record, Completion& completion) noexcept {
  record.status = completion.ok() ? Status{} : Status{completion.error()};
  record.old_value = completion.old_value();
  record.request.slot = std::move(completion.slot());
  if (arena_ == nullptr && resume_.post_ == nullptr)
    go_on(record);
  else
    post(record);
}

/// Has `record` go on where that is to be. Any thread.
void AsyncCore::post(AsyncRecord& record) noexcept {
  if (resume_.post_ != nullptr) {
    // Not held: the loop's thread may be the one that waits in close().
    keep();
    record.held = false;
    return resume_.post_(resume_.context_, Resumption{record});
  }
  record.held = hold();
  if (!record.held) keep();
  if (arena_ != nullptr) return arena_->post(record);
  poller().post(record);
}

void AsyncCore::run_record(Resumable& record) noexcept {
  auto& resumed = static_cast<AsyncRecord&>(record);
  AsyncCore& core = *resumed.core;
  const bool held = resumed.held;
  const AsyncCore* const before = std::exchange(t_going_on, held ? &core : t_going_on);
  core.go_on(resumed);
  t_going_on = before;
  if (held)
    core.let_go();
  else
    core.drop();
}

void AsyncCore::go_on(AsyncRecord& record) noexcept {
  std::coroutine_handle<> waiter;
  AsyncOperation* const operation = record.operation.exchange(nullptr, std::memory_order_acq_rel);
  if (operation != nullptr) {
    operation->status_ = record.status;
    operation->old_value_ = record.old_value;
    operation->request_.slot = std::move(record.request.slot);
    waiter = operation->waiter_;
  }
  record.request.slot = Slot{};
  // The next one in line is under way before the coroutine's own code runs.
  give_back(record);
  if (waiter) waiter.resume();
}

void AsyncCore::give_back(AsyncRecord& record) noexcept {
  free_.give_back(record.index);
  if (waiting_.fetch_add(0, std::memory_order_acq_rel) != 0) serve_line();
}

void AsyncCore::line_up(AsyncOperation& operation) noexcept {
  operation.until_ = deadline_after(deadline()).time_since_epoch().count();
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
  serve_line();
}

/// Submits what stands in line, as far as there are records. In any thread, which need not be where
/// these coroutines go on: what cannot be submitted is posted there.
void AsyncCore::serve_line() noexcept {
  Deadline until;
  bool stopped = false;
  while (AsyncRecord* const record = next_in_line(until, stopped)) {
    const AsyncRequest::Waited waited{record->request};
    const Status taken =
        stopped ? stopped_before(opcode_of(record->request.kind)) : submit(*record, until);
    if (taken) continue;
    record->status = taken;
    post(*record);
  }
}

/// The record of the one that stood first, or null. Its frame may be destroyed from here on.
AsyncRecord* AsyncCore::next_in_line(Deadline& until, bool& stopped) noexcept {
  const MutexLock lock{mutex_};
  if (first_ == nullptr) return nullptr;
  const std::uint32_t index = free_.take();
  if (index == IndexStack::kNone) return nullptr;
  AsyncOperation& operation = *first_;
  leave_line(operation);
  until = Deadline{Deadline::duration{operation.until_}};
  stopped = operation.stop_.stop_requested();
  settle_in(operation, records_[index]);
  return &records_[index];
}

/// Under the lock.
void AsyncCore::leave_line(AsyncOperation& operation) noexcept {
  AsyncOperation* const before = operation.before_;
  AsyncOperation* const behind = operation.behind_;
  (before == nullptr ? first_ : before->behind_) = behind;
  (behind == nullptr ? last_ : behind->before_) = before;
  operation.in_line_ = false;
  waiting_.fetch_sub(1, std::memory_order_acq_rel);
}

void AsyncCore::forget(AsyncOperation& operation) noexcept {
  {
    const MutexLock lock{mutex_};
    if (operation.in_line_) {
      const AsyncRequest::Waited waited{operation.request_};
      return leave_line(operation);
    }
  }
  AsyncOperation* expected = &operation;
  (void)operation.record_->operation.compare_exchange_strong(
      expected, nullptr, std::memory_order_acq_rel, std::memory_order_relaxed);
}

void AsyncCore::close() noexcept {
  if (t_going_on != this) return CallbackCore::close();
  abandon();
  log::warn("a queue was destroyed by a coroutine of its own: its operations are not waited for");
}

void CloseAsync::operator()(AsyncCore* closing) noexcept {
  closing->close();
  core = nullptr;
}

AsyncOperation::AsyncOperation(const AsyncRegion& in, AsyncRequest&& request) noexcept
    : request_{std::move(request)},
      region_{in.queue_ == nullptr ? in.region_ : decltype(in.region_){}},
      queue_{in.queue_},
      stop_{in.stop_} {}

AsyncOperation::~AsyncOperation() {
  if (executor_ != nullptr) executor_->forget(*this);
  if (awaited_ && queue_ != nullptr) queue_->forget(*this);
}

bool AsyncOperation::await_suspend(std::coroutine_handle<> waiter) noexcept {
  waiter_ = waiter;
  ExecutorCore* const executor = ExecutorCore::current();
  if (queue_ == nullptr && region_ == nullptr) [[unlikely]] {
    status_ = closed_handle("co_await", queue_.foreign() || region_.foreign());
    return false;
  }
  if (stop_.stop_requested()) [[unlikely]] {
    status_ = stopped_before(opcode_of(request_.kind));
    return false;
  }
  if ((executor == nullptr) == (queue_ == nullptr)) {
    status_ = Error{Code::kInvalidArgument, "co_await"}.with_subject(
        queue_ == nullptr ? "outside of Executor::run(): use an AsyncQueue"
                          : "inside of Executor::run(): use Region::async()");
    return false;
  }
  if (executor != nullptr) {
    status_ = executor->take(*this);
    if (status_) executor_ = executor;
    return status_.ok();
  }
  // Once it is taken this may be gone, and with it the queue.
  const std::shared_ptr<AsyncCore> queue = queue_.pointer();
  awaited_ = true;
  const Status taken = queue->take(*this);
  if (taken) return true;
  awaited_ = false;
  status_ = taken;
  return false;
}

Status AsyncOperation::end() noexcept {
  executor_ = nullptr;
  awaited_ = false;
  return status_;
}

}  // namespace remora::detail

namespace remora {

ByteOffset AsyncRegion::offset_of(Block block) const noexcept {
  return region_ == nullptr ? ByteOffset{0} : detail::offset_of(block, region_->info());
}

AsyncQueue::AsyncQueue(std::shared_ptr<detail::AsyncCore> core) noexcept
    : core_{std::unique_ptr<detail::AsyncCore, detail::CloseAsync>{core.get(),
                                                                   detail::CloseAsync{core}}} {}
AsyncRegion AsyncQueue::async() const noexcept {
  const std::shared_ptr<detail::AsyncCore>& core = core_.pointer().get_deleter().core;
  if (core == nullptr) return {nullptr, nullptr};
  return {core_.share(core->region()), core_.share(core)};
}
std::size_t AsyncQueue::depth() const noexcept { return core_ == nullptr ? 0 : core_->depth(); }

AsyncRegion Region::async() const noexcept { return {core_, nullptr}; }

Result<AsyncQueue> Region::async_queue(const QueueOptions& options) const {
  return async_queue(options, Resume::on_poller());
}
Result<AsyncQueue> Region::async_queue(const QueueOptions& options, const Resume& resume) const {
  if (core_ == nullptr) return detail::closed("async_queue", core_);
  auto core = detail::AsyncCore::create(core_.pointer(), options, resume);
  if (!core) return core.error();
  return AsyncQueue{std::move(*core)};
}

}  // namespace remora
