#include "client/engine/control_calls.h"

#include <algorithm>
#include <cerrno>
#include <exception>
#include <new>
#include <pthread.h>
#include <string_view>
#include <system_error>
#include <utility>

#include <remora/start_thread.h>

#include "base/closed.h"
#include "base/log.h"
#include "client/datapath/arena.h"
#include "client/engine/engine_core.h"
#include "client/queue/executor_core.h"
#include "client/queue/poller.h"
#include "client/session/resumption_inbox.h"

namespace remora::detail {

namespace {
/// A blocking function ends at its deadline by itself, with a better reason than the timer has.
constexpr std::chrono::seconds kOwnEnd{1};
constexpr std::chrono::seconds kCloseTime{2};

/// Ends that are being told in this thread, one within the other.
thread_local std::size_t t_telling = 0;
/// This thread, a control thread, has claimed its call and has not let go of it.
thread_local bool t_finishing = false;
}  // namespace

ControlCalls::Telling::Telling() noexcept { ++t_telling; }
ControlCalls::Telling::~Telling() { --t_telling; }

Status ControlCalls::add(const std::shared_ptr<ControlRecord>& record, EventLoop& loop) {
  const MutexLock lock{mutex_};
  if (closed_)
    return Error{Code::kClosed, record->operation_}.with_subject("the engine was destroyed");
  if (record->unwanted_) return Error{Code::kCancelled, record->operation_};
  if (threads_max_ == 0)
    return Error{Code::kInvalidArgument, record->operation_}.with_subject(
        "EngineOptions::control_threads is 0: set it to 1 or more");
  if (calls_.size() >= kControlCallsMax)
    return Error{Code::kWouldBlock, record->operation_}
        .with_subject("calls of this engine that have not ended: wait for one of them")
        .with_limit(calls_.size() + 1, kControlCallsMax);
  if (loop_ == nullptr)
    if (auto status = start_timer(loop); !status) return status;
  // Those that stand in the queue have the free threads.
  if (threads_.size() - busy_ <= queue_.size() && threads_.size() < threads_max_) {
    const Status started = start_thread();
    // With fewer threads calls wait longer; without any they would wait for ever.
    if (!started && threads_.empty()) return started;
  }
  queue_.push_back(record);
  try {
    calls_.emplace(record.get(), record);
  } catch (...) {
    queue_.pop_back();
    throw;
  }
  if (record->held_) ++untold_;
  if (record->until_ < armed_) arm(record->until_);
  work_.notify_one();
  return {};
}

Status ControlCalls::start_thread() noexcept {
  try {
    threads_.reserve(threads_.size() + 1);
  } catch (const std::bad_alloc&) {
    return Error{Code::kOutOfMemory, "start a control thread"};
  }
  auto thread = detail::start_thread("remora-calls", [calls = shared_from_this()] { run(calls); });
  if (!thread) return thread.error();
  threads_.push_back(std::move(*thread));
  return {};
}

Status ControlCalls::start_timer(EventLoop& loop) {
  if (auto status = timer_.open(); !status) return status;
  auto watch = loop.watch(timer_.get(), [weak = weak_from_this()] {
    if (const auto calls = weak.lock()) calls->expire();
  });
  if (!watch) return watch.error();
  loop_ = &loop;
  timer_watch_ = *watch;
  return {};
}

void ControlCalls::arm(Deadline at) noexcept {
  armed_ = at;
  timer_.set(at);
}

void ControlCalls::run(const std::shared_ptr<ControlCalls>& calls) noexcept {
  (void)calls->placement_.bind_thread();
  MutexLock lock{calls->mutex_};
  while (true) {
    calls->work_.wait(lock, [&] {
      calls->mutex_.assert_held();
      return calls->stopping_ || !calls->queue_.empty();
    });
    if (calls->stopping_) return;
    std::shared_ptr<ControlRecord> record = std::move(calls->queue_.front());
    calls->queue_.pop_front();
    record->running_ = true;
    // What is made may need the engine, whatever becomes of the call meanwhile.
    std::shared_ptr<EngineCore> engine = record->engine_;
    ++calls->busy_;
    lock.unlock();
    record->work({.until = record->until_, .stop = record->abandoned_.get_token()});
    record = nullptr;
    engine = nullptr;  // where it is the last, the engine ends here, and this thread with it
    lock.lock();
    --calls->busy_;
    if (std::exchange(t_finishing, false) && --calls->finishing_ == 0) calls->rest_.notify_all();
  }
}

/// Null: it has ended before, or was never taken.
std::shared_ptr<ControlRecord> ControlCalls::take_away(ControlRecord& record) noexcept {
  const auto found = calls_.find(&record);
  if (found == calls_.end()) return nullptr;
  std::shared_ptr<ControlRecord> taken = std::move(found->second);
  calls_.erase(found);
  if (!taken->running_) std::erase(queue_, taken);
  return taken;
}

bool ControlCalls::claim(ControlRecord& record) noexcept {
  const MutexLock lock{mutex_};
  if (take_away(record) == nullptr) return false;
  ++finishing_;
  t_finishing = true;
  return true;
}

bool ControlCalls::end(ControlRecord& record, const Error& error) noexcept {
  std::shared_ptr<ControlRecord> taken;
  {
    const MutexLock lock{mutex_};
    taken = take_away(record);
    if (taken == nullptr) {
      record.unwanted_ = true;
      return false;
    }
  }
  give_up(*taken, error);
  return true;
}

/// Of a call that was taken away.
void ControlCalls::give_up(ControlRecord& record, const Error& error) noexcept {
  if (record.running_)
    record.abandoned_.request_stop();
  else
    record.drop_work();
  record.set_error(error);
  record.finish();
}

/// The loop's thread.
void ControlCalls::expire() noexcept {
  const auto due = [](const ControlRecord& record) {
    return record.until_ + (record.running_ ? kOwnEnd : kOwnEnd.zero());
  };
  timer_.take();
  MutexLock lock{mutex_};
  while (true) {
    const auto earliest = std::min_element(
        calls_.begin(), calls_.end(),
        [&](const auto& one, const auto& other) { return due(*one.first) < due(*other.first); });
    if (earliest == calls_.end()) return arm(Deadline::max());
    if (const Deadline at = due(*earliest->first); at > Clock::now()) return arm(at);
    const std::shared_ptr<ControlRecord> record = take_away(*earliest->first);
    lock.unlock();
    const std::string_view why = record->running_
                                     ? "it has not returned in time"
                                     : "no control thread was free: EngineOptions::control_threads";
    give_up(*record, Error{Code::kTimedOut, record->operation_}.with_subject(why));
    lock.lock();
  }
}

void ControlCalls::was_told() noexcept {
  const MutexLock lock{mutex_};
  if (--untold_ == 0) rest_.notify_all();
}

void ControlCalls::close(bool wait) noexcept {
  MutexLock lock{mutex_};
  closed_ = true;
  if (loop_ != nullptr) std::exchange(loop_, nullptr)->drop(timer_watch_);
  while (!calls_.empty()) {
    const std::shared_ptr<ControlRecord> record = take_away(*calls_.begin()->first);
    lock.unlock();
    give_up(*record, Error{Code::kClosed, record->operation_}.with_subject(
                         "the engine was destroyed meanwhile"));
    lock.lock();
  }
  if (!wait || t_telling != 0) return;
  if (!rest_.wait_for(lock, kCloseTime, [this] {
        mutex_.assert_held();
        return untold_ == 0 && finishing_ == 0;
      }))
    log::warn(
        "a poller or the arena is blocked: an engine is destroyed before {} of its control "
        "calls are told of",
        untold_);
}

void ControlCalls::stop() noexcept {
  std::vector<std::thread> threads;
  {
    const MutexLock lock{mutex_};
    closed_ = stopping_ = true;
    threads.swap(threads_);
    work_.notify_all();
  }
  for (std::thread& thread : threads) {
    if (thread.get_id() == std::this_thread::get_id())
      thread.detach();
    else
      thread.join();
  }
}

ControlRecord::ControlRecord(std::shared_ptr<EngineCore> engine, Operation operation,
                             const ControlOptions& options)
    : engine_{std::move(engine)}, operation_{operation}, options_{options} {
  run = &ControlRecord::told;
}

ControlRecord::~ControlRecord() = default;

Error ControlRecord::threw(const char* what) noexcept {
  return Error{Code::kSystem, "control call: an exception left it"}.with_subject(what);
}

Status ControlRecord::start(bool await) noexcept {
  if (engine_ == nullptr) return closed_handle(operation_, false);
  try {
    if (auto status = prepare(await); !status) return status;
    auto loop = engine_->control_loop();
    if (!loop) return not_begun(loop.error());
    calls_ = engine_->control_calls();
    until_ = deadline_after(options_.deadline);
    if (stop_.stop_possible())
      on_stop_.emplace(stop_, [weak = weak_from_this()] {
        if (const auto alive = weak.lock()) (void)alive->cancel();
      });
    const Status added = calls_->add(shared_from_this(), **loop);
    if (!added) return not_begun(added.error());
    return {};
  } catch (const std::bad_alloc&) {
    return not_begun(Error{Code::kOutOfMemory, operation_});
  } catch (const std::system_error& error) {
    return not_begun(Error{Code::kSystem, "start a thread"}.with_errno(error.code().value()));
  } catch (const std::exception& error) {  // of oneTBB's
    return not_begun(Error{Code::kSystem, operation_}.with_subject(error.what()));
  }
}

/// Where its end will be told.
Status ControlRecord::prepare(bool await) {
  ExecutorCore* const executor = await ? ExecutorCore::current() : nullptr;
  if (executor != nullptr) {
    inbox_ = executor->control_begins();
    if (inbox_ == nullptr) return Error{Code::kSystem, "eventfd"}.with_errno(errno);
    executor_ = executor;
    return {};
  }
  held_ = options_.resume.post_ == nullptr;
  if (options_.resume.on_arena_) {
    auto arena = engine_->arena();
    if (!arena) return arena.error();
  } else if (held_) {
    auto poller = engine_->poller();
    if (!poller) return poller.error();
    poller_ = *poller;
  }
  return {};
}

Error ControlRecord::not_begun(const Error& error) noexcept {
  if (executor_ != nullptr) std::exchange(executor_, nullptr)->control_ends();
  return error;
}

bool ControlRecord::cancel() noexcept {
  return calls_ != nullptr && calls_->end(*this, Error{Code::kCancelled, operation_});
}

void ControlRecord::forget() noexcept {
  if (executor_ != nullptr) std::exchange(executor_, nullptr)->control_ends();
  (void)cancel();
}

bool ControlRecord::claim() noexcept { return calls_->claim(*this); }

/// Hands it over to where its end is told. It may be gone on return, unless it is kept elsewhere.
void ControlRecord::finish() noexcept {
  self_ = shared_from_this();
  if (!held_) {
    // Not kept any longer: the loop of the application, or an executor, may take its time.
    const std::shared_ptr<EngineCore> engine = std::move(engine_);
    const std::shared_ptr<ResumptionInbox> inbox = std::move(inbox_);
    if (inbox != nullptr)
      inbox->post(*this);
    else
      options_.resume.post_(options_.resume.context_, Resumption{*this});
    return;
  }
  if (poller_ != nullptr) return poller_->post(*this);
  // Made by prepare().
  if (auto arena = engine_->arena()) return (*arena)->post(*this);
  told(*this);
}

void ControlRecord::told(Resumable& self) noexcept {
  auto& record = static_cast<ControlRecord&>(self);
  std::shared_ptr<ControlRecord> kept = std::move(record.self_);
  const std::shared_ptr<ControlCalls> calls = record.calls_;
  const bool held = record.held_;
  if (record.executor_ != nullptr) std::exchange(record.executor_, nullptr)->control_ends();
  {
    const ControlCalls::Telling telling;
    record.tell();
  }
  record.engine_ = nullptr;
  kept = nullptr;
  if (held) calls->was_told();
}

void control_callback_threw(const char* what) noexcept {
  log::warn("a callback of a control call threw: {}", what);
}

}  // namespace remora::detail

namespace remora {

ResumptionQueue::ResumptionQueue(std::shared_ptr<detail::ResumptionInbox> inbox) noexcept
    : inbox_{std::move(inbox)} {}
ResumptionQueue::~ResumptionQueue() = default;
ResumptionQueue::ResumptionQueue(ResumptionQueue&&) noexcept = default;
ResumptionQueue& ResumptionQueue::operator=(ResumptionQueue&&) noexcept = default;

Result<ResumptionQueue> ResumptionQueue::create() noexcept {
  try {
    auto inbox = std::make_shared<detail::ResumptionInbox>();
    if (!inbox->open()) return Error{Code::kSystem, "eventfd"}.with_errno(errno);
    return ResumptionQueue{std::move(inbox)};
  } catch (const std::bad_alloc&) {
    return Error{Code::kOutOfMemory, "ResumptionQueue::create"};
  }
}

Resume ResumptionQueue::resume() const noexcept {
  if (inbox_ == nullptr) return {};
  return {[](void* inbox, Resumption next) noexcept {
            static_cast<detail::ResumptionInbox*>(inbox)->post(next.record());
          },
          inbox_.get()};
}
int ResumptionQueue::event_fd() const noexcept {
  return inbox_ == nullptr ? -1 : inbox_->event_fd();
}
std::size_t ResumptionQueue::progress() noexcept {
  return inbox_ == nullptr ? 0 : inbox_->run_and_arm();
}

}  // namespace remora
