#include "client/services/control_calls.h"

#include <algorithm>
#include <cerrno>
#include <exception>
#include <new>
#include <pthread.h>
#include <string_view>
#include <system_error>
#include <utility>

#include <remora/assert.h>
#include <remora/start_thread.h>

#include "base/log.h"

namespace remora::detail {

namespace {
/// The timer waits this much longer than the deadline, since the blocking function ends at the
/// deadline by itself, with a more exact reason.
constexpr std::chrono::seconds kOwnEnd{1};
constexpr std::chrono::seconds kCloseTime{2};

/// Number of ends that this thread is reporting, nested.
thread_local std::size_t t_telling = 0;
/// Whether this control thread has claimed its call and still has a reference to it.
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
  if (calls_.size() >= kMaxControlCalls)
    return Error{Code::kWouldBlock, record->operation_}
        .with_subject("calls of this engine that have not ended: wait for one of them")
        .with_limit(calls_.size() + 1, kMaxControlCalls);
  if (loop_ == nullptr)
    if (auto status = start_timer(loop); !status) return status;
  // The idle threads take the calls that are in the queue already.
  REMORA_ASSERT(busy_ <= threads_.size(), "a thread carries out one call at a time");
  if (threads_.size() - busy_ <= queue_.size() && threads_.size() < threads_max_) {
    const Status started = start_thread();
    // If there is another thread, the call waits for it. Without threads it would wait for ever.
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
    // work() uses the engine, even if the call ends meanwhile and releases it.
    std::shared_ptr<EngineServices> engine = record->engine_;
    ++calls->busy_;
    lock.unlock();
    record->work({.until = record->until_, .stop = record->abandoned_.get_token()});
    record = nullptr;
    engine = nullptr;  // may destroy the engine, which then ends this thread
    lock.lock();
    --calls->busy_;
    if (!std::exchange(t_finishing, false)) continue;
    REMORA_ASSERT(calls->finishing_ > 0, "a thread that has claimed a call is counted");
    if (--calls->finishing_ == 0) calls->rest_.notify_all();
  }
}

/// Removes the call. Null: it has ended already, or was never added.
std::shared_ptr<ControlRecord> ControlCalls::take_out(ControlRecord& record) noexcept {
  const auto found = calls_.find(&record);
  if (found == calls_.end()) return nullptr;
  std::shared_ptr<ControlRecord> taken = std::move(found->second);
  calls_.erase(found);
  if (taken->running_) return taken;
  const std::size_t waiting = std::erase(queue_, taken);
  REMORA_ASSERT(waiting == 1, "a call that does not run waits once for a thread");
  return taken;
}

bool ControlCalls::claim(ControlRecord& record) noexcept {
  const MutexLock lock{mutex_};
  if (take_out(record) == nullptr) return false;
  REMORA_ASSERT(!t_finishing, "a thread claims one call at a time");
  ++finishing_;
  t_finishing = true;
  return true;
}

bool ControlCalls::end(ControlRecord& record, const Error& error) noexcept {
  std::shared_ptr<ControlRecord> taken;
  {
    const MutexLock lock{mutex_};
    taken = take_out(record);
    if (taken == nullptr) {
      record.unwanted_ = true;
      return false;
    }
  }
  give_up(*taken, error);
  return true;
}

/// Ends a call that take_out() has returned.
void ControlCalls::give_up(ControlRecord& record, const Error& error) noexcept {
  if (record.running_)
    record.abandoned_.request_stop();
  else
    record.drop_work();
  record.set_error(error);
  record.finish();
}

/// The control thread calls it.
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
    const std::shared_ptr<ControlRecord> record = take_out(*earliest->first);
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
  REMORA_ASSERT(untold_ > 0, "the end of a control call is told once");
  if (--untold_ == 0) rest_.notify_all();
}

void ControlCalls::close(bool wait) noexcept {
  MutexLock lock{mutex_};
  closed_ = true;
  if (loop_ != nullptr) std::exchange(loop_, nullptr)->drop(timer_watch_);
  while (!calls_.empty()) {
    const std::shared_ptr<ControlRecord> record = take_out(*calls_.begin()->first);
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
    log::warn({"client.destroyed_early", "calls"},
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

}  // namespace remora::detail
