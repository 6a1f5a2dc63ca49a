#include "client/queue/executor_core.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <new>
#include <poll.h>
#include <utility>

#include <remora/engine/executor.h>
#include <remora/owned.h>

#include "base/clock.h"

namespace remora::detail {

namespace {
thread_local ExecutorCore* t_current = nullptr;
/// Number of polls of several regions before the thread sleeps on their descriptors.
constexpr int kPollRounds = 200;

class Current {
 public:
  explicit Current(ExecutorCore& core) noexcept : outer_{ExecutorCore::set_current(&core)} {}
  ~Current() { ExecutorCore::set_current(outer_); }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

 private:
  ExecutorCore* outer_;
};
}  // namespace

ExecutorCore* ExecutorCore::current() noexcept { return t_current; }
ExecutorCore* ExecutorCore::set_current(ExecutorCore* core) noexcept {
  return std::exchange(t_current, core);
}

Result<ExecutorQueue*> ExecutorCore::queue_of(const std::shared_ptr<RegionGrant>& region) noexcept {
  for (const auto& queue : queues_)
    if (queue->is_for(region)) return queue.get();
  try {
    auto queue = ExecutorQueue::create(region, depth_, ready_);
    if (!queue) return queue.error();
    reserve_waits(queues_.size() + 1);
    queues_.push_back(std::move(*queue));
    return queues_.back().get();
  } catch (const std::bad_alloc&) {
    return Error{Code::kOutOfMemory, "co_await"};
  }
}

Result<std::shared_ptr<CoroutineInbox>> ExecutorCore::inbox() noexcept {
  if (inbox_ != nullptr) return inbox_;
  try {
    auto made = std::make_shared<CoroutineInbox>();
    if (!made->open()) return Error{Code::kSystem, "eventfd"}.with_errno(errno);
    reserve_waits(queues_.size());
    return inbox_ = std::move(made);
  } catch (const std::bad_alloc&) {
    return Error{Code::kOutOfMemory, "co_await"};
  }
}

/// Room for each queue and the inbox, so that waiting allocates nothing.
void ExecutorCore::reserve_waits(std::size_t queues) {
  busy_.reserve(queues);
  events_.reserve(queues + 1);
}

/// A task has called fork(2), and this is the child: the operations that it awaits belong to the
/// parent.
void ExecutorCore::end_all_in_child() noexcept {
  process_ = this_process();
  for (const auto& queue : queues_) queue->end_all_in_child();
}

/// Submits the awaited operations and takes those that have ended. Returns whether a coroutine may
/// be resumed, or was resumed by the inbox.
bool ExecutorCore::poll() noexcept {
  const bool any = inbox_ != nullptr && inbox_->run_all() != 0;
  // Also after jobs of the inbox, so that an inbox that other threads keep filling does not delay
  // the regions.
  for (const auto& queue : queues_) queue->submit_and_poll();
  return any || !ready_.empty();
}

void ExecutorCore::wait_for_any() noexcept {
  busy_.clear();
  events_.clear();
  for (const auto& queue : queues_)
    if (queue->busy()) busy_.push_back(queue.get());
  const bool inbox = inbox_ != nullptr && inbox_->awaited();
  if (busy_.empty() && !inbox) {
    std::fputs(
        "remora: Executor::run(): its task waits, and no operation is in flight that could resume "
        "it: await only operations, control calls and tasks of this executor\n",
        stderr);
    std::terminate();
  }
  if (busy_.size() == 1 && !inbox) return busy_.front()->wait_for_one();
  for (int i = 0; i < kPollRounds && !busy_.empty(); ++i)
    if (poll()) return;
  if (inbox) {
    events_.push_back({.fd = inbox_->event_fd(), .events = POLLIN, .revents = 0});
    if (inbox_->run_and_arm() != 0) return;
  }
  Deadline earliest =
      busy_.empty() ? Deadline::max() : Clock::now() + std::chrono::milliseconds{100};
  for (ExecutorQueue* const each : busy_) {
    earliest = std::min(earliest, each->queue().next_deadline());
    auto descriptor = each->queue().event_fd();
    // Without a descriptor, the other descriptors and the timeout wake the thread.
    if (descriptor) events_.push_back({.fd = *descriptor, .events = POLLIN, .revents = 0});
  }
  // Each progress() asks for the next event, so a completion between it and the sleep wakes the
  // thread.
  for (ExecutorQueue* const each : busy_) each->progress();
  if (!ready_.empty()) return;
  ::poll(events_.data(), events_.size(), milliseconds_until(earliest) + 1);
  for (ExecutorQueue* const each : busy_) each->progress();
}

/// Returns when a coroutine may be resumed, or the inbox has resumed one.
void ExecutorCore::wait_until_ready() noexcept {
  if (process_ != this_process()) [[unlikely]]
    end_all_in_child();
  if (ready_.empty() && !poll()) wait_for_any();
}

bool ExecutorCore::any_in_flight() const noexcept {
  return std::any_of(queues_.begin(), queues_.end(),
                     [](const auto& queue) { return queue->busy() || queue->has_line(); });
}

/// The task has ended. A coroutine that it began, and that lives elsewhere, may still await an
/// operation in this executor: it is resumed here, when that has ended. What it awaits then finds
/// this thread outside of run(). `process`: in which run() began.
void ExecutorCore::resume_what_is_left(std::uint32_t process) noexcept {
  if (process_ != this_process()) [[unlikely]]
    end_all_in_child();
  // In a child of fork(2) the operations that its parent's pollers drive do not end.
  const auto inbox_awaited = [&] {
    return inbox_ != nullptr && inbox_->awaited() && process == this_process();
  };
  while (!ready_.empty() || any_in_flight() || inbox_awaited()) {
    wait_until_ready();
    while (!ready_.empty()) ready_.run_first();
  }
}

Status ExecutorCore::drive(bool (*ended)(void*) noexcept, void* task,
                           void (*start)(void*)) noexcept {
  if (running_.exchange(true, std::memory_order_acquire))
    return Error{Code::kBusy, "run"}.with_subject("this executor runs another task");
  const std::uint32_t process = this_process();
  {
    const Current current{*this};
    start(task);
    while (!ended(task)) {
      wait_until_ready();
      // Coroutines that become ready meanwhile are resumed after the operations that they await
      // were submitted.
      for (std::size_t left = ready_.size(); left != 0 && !ended(task); --left) ready_.run_first();
    }
  }
  resume_what_is_left(process);
  queues_.clear();
  running_.store(false, std::memory_order_release);
  return {};
}

}  // namespace remora::detail

namespace remora {

using detail::ExecutorCore;

Executor::Executor(const ExecutorOptions& options)
    : core_{std::make_unique<ExecutorCore>(
          std::clamp<std::size_t>(options.depth, 1, kMaxQueueDepth))} {}
/// While run() is under way, only exit(3) destroys an executor, which is static then: it is called
/// in a task, or in another thread. Operations are in flight, and coroutines that still exist name
/// their queues. So the state stays until the process has ended.
Executor::~Executor() {
  if (core_ != nullptr && core_->running()) [[unlikely]]
    detail::keep_unreleased(core_);
}

/// An Executor that a parent process made outside of run() has no state of the parent except the
/// depth.
Status Executor::drive(bool (*ended)(void*) noexcept, void* task, void (*start)(void*)) {
  if (core_ == nullptr) core_ = std::make_unique<ExecutorCore>(core_.pointer()->depth());
  return core_->drive(ended, task, start);
}

}  // namespace remora
