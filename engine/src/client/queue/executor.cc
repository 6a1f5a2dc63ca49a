#include <algorithm>
#include <exception>
#include <poll.h>
#include <utility>

#include <remora/engine/executor.h>

#include "client/queue/async_core.h"
#include "client/queue/executor_core.h"

namespace remora::detail {

namespace {
thread_local ExecutorCore* t_current = nullptr;
/// Rounds of polling several regions before sleeping on their descriptors.
constexpr int kPollRounds = 200;
}  // namespace

class ExecutorCore::Entered {
 public:
  explicit Entered(ExecutorCore& core) noexcept : before_{std::exchange(t_current, &core)} {}
  ~Entered() { t_current = before_; }
  Entered(const Entered&) = delete;
  Entered& operator=(const Entered&) = delete;

 private:
  ExecutorCore* before_;
};

ExecutorCore* ExecutorCore::current() noexcept { return t_current; }

Result<ExecutorCore::Lane*> ExecutorCore::lane_of(const std::shared_ptr<RegionGrant>& region) {
  for (const auto& lane : lanes_)
    if (lane->region.pointer() == region) return lane.get();
  auto queue = QueueCore::create(region, {.depth = depth_});
  if (!queue) return queue.error();
  auto lane = std::make_unique<Lane>();
  lane->region = region;
  lane->queue = std::move(*queue);
  lane->in_flight.resize(depth_);
  for (std::size_t i = depth_; i-- > 0;) lane->free.push_back(static_cast<std::uint32_t>(i));
  lanes_.push_back(std::move(lane));
  return lanes_.back().get();
}

Status ExecutorCore::take(AsyncOperation& operation) {
  auto lane = lane_of(operation.region_.pointer());
  if (!lane) return lane.error();
  (*lane)->waiting.push_back(&operation);
  operation.request_.begin_wait();
  return {};
}

/// A task has forked, and this is the child: what it awaits is the parent's.
void ExecutorCore::end_forked() {
  process_ = this_process();
  const Error closed = closed_handle("co_await", true);
  const auto end = [&](AsyncOperation* operation) {
    if (operation == nullptr) return;
    operation->status_ = closed;
    ready_.push_back(operation->waiter_);
  };
  for (const auto& lane : lanes_) {
    for (AsyncOperation* const operation : lane->in_flight) end(operation);
    for (AsyncOperation* const operation : lane->waiting) end(operation);
  }
  lanes_.clear();
}

/// Moves what waits into the queue, as far as there is room.
void ExecutorCore::fill(Lane& lane) {
  while (!lane.waiting.empty() && !lane.free.empty()) {
    AsyncOperation& operation = *lane.waiting.front();
    lane.waiting.pop_front();
    if (operation.stop_.stop_requested()) {
      operation.status_ = stopped_before(opcode_of(operation.request_.kind));
      ready_.push_back(operation.waiter_);
      continue;
    }
    const std::uint32_t tag = lane.free.back();
    lane.free.pop_back();
    lane.in_flight[tag] = &operation;
    operation.index_ = tag;
    const AsyncRequest::Waited waited{operation.request_};
    operation.request_.give_to(*lane.queue, std::uint64_t{tag});
  }
}

void ExecutorCore::forget(AsyncOperation& operation) noexcept {
  std::erase(ready_, operation.waiter_);
  for (const auto& lane : lanes_) {
    if (lane->region.pointer() != operation.region_.pointer()) continue;
    if (std::erase(lane->waiting, &operation) != 0) {
      const AsyncRequest::Waited waited{operation.request_};
      return;
    }
    AsyncOperation*& place = lane->in_flight[operation.index_];
    if (place == &operation) place = nullptr;
  }
}

void ExecutorCore::take_completions(Lane& lane, Completions found) {
  for (Completion& completion : found) {
    const auto tag = static_cast<std::uint32_t>(completion.tag());
    AsyncOperation* const operation = std::exchange(lane.in_flight[tag], nullptr);
    lane.free.push_back(tag);
    if (operation == nullptr) continue;
    operation->status_ = completion.ok() ? Status{} : Status{completion.error()};
    operation->old_value_ = completion.old_value();
    operation->request_.slot = std::move(completion.slot());
    ready_.push_back(operation->waiter_);
  }
}

std::shared_ptr<ResumptionInbox> ExecutorCore::control_begins() {
  if (inbox_ == nullptr) {
    auto made = std::make_shared<ResumptionInbox>();
    if (!made->open()) return nullptr;
    inbox_ = std::move(made);
  }
  ++controls_;
  return inbox_;
}

/// Submits what was awaited and takes what has completed; true when a coroutine may go on, or has
/// gone on with the end of a control call.
bool ExecutorCore::poll() {
  if (inbox_ != nullptr && inbox_->run_all() != 0) return true;
  for (const auto& lane : lanes_) {
    fill(*lane);
    (void)lane->queue->submit();
    if (lane->queue->busy()) take_completions(*lane, lane->queue->wait(0));
  }
  return !ready_.empty();
}

void ExecutorCore::wait_for_any() {
  std::vector<Lane*> busy;
  for (const auto& lane : lanes_)
    if (lane->queue->busy()) busy.push_back(lane.get());
  const bool controls = controls_ != 0;
  if (busy.empty() && !controls) std::terminate();  // nothing will ever resume the task
  if (busy.size() == 1 && !controls)
    return take_completions(*busy.front(), busy.front()->queue->wait(1));
  for (int i = 0; i < kPollRounds && !busy.empty(); ++i)
    if (poll()) return;
  std::vector<pollfd> events;
  if (controls) {
    events.push_back({.fd = inbox_->event_fd(), .events = POLLIN, .revents = 0});
    if (inbox_->run_and_arm() != 0) return;
  }
  Deadline earliest =
      busy.empty() ? Deadline::max() : Clock::now() + std::chrono::milliseconds{100};
  for (Lane* const lane : busy) {
    earliest = std::min(earliest, lane->queue->next_deadline());
    auto descriptor = lane->queue->event_fd();
    // Without one the others' and the clock wake it.
    if (descriptor) events.push_back({.fd = *descriptor, .events = POLLIN, .revents = 0});
  }
  // Each look asks for the next event, so nothing comes between it and the sleep.
  for (Lane* const lane : busy) take_completions(*lane, lane->queue->progress());
  if (!ready_.empty()) return;
  ::poll(events.data(), events.size(), milliseconds_until(earliest) + 1);
  for (Lane* const lane : busy) take_completions(*lane, lane->queue->progress());
}

void ExecutorCore::drive(bool (*ended)(void*) noexcept, void* task, void (*start)(void*)) {
  const Entered entered{*this};
  start(task);
  while (!ended(task)) {
    if (process_ != this_process()) [[unlikely]]
      end_forked();
    if (ready_.empty() && !poll()) wait_for_any();
    // Those that become ready meanwhile have their turn after what they wait for was submitted.
    for (std::size_t left = ready_.size(); left != 0 && !ended(task); --left) {
      const std::coroutine_handle<> next = ready_.front();
      ready_.pop_front();
      next.resume();
    }
  }
  ready_.clear();
  for (const auto& lane : lanes_)
    for (AsyncOperation* const operation : lane->waiting)
      const AsyncRequest::Waited waited{operation->request_};
  lanes_.clear();
}

}  // namespace remora::detail

namespace remora {

using detail::ExecutorCore;

Executor::Executor(const ExecutorOptions& options)
    : core_{std::make_unique<ExecutorCore>(
          std::clamp<std::size_t>(options.depth, 1, kMaxQueueDepth))} {}
Executor::~Executor() = default;

/// One that a parent made outside of its run() has nothing of the parent's: only the depth counts.
void Executor::drive(bool (*ended)(void*) noexcept, void* task, void (*start)(void*)) {
  if (core_ == nullptr) core_ = std::make_unique<ExecutorCore>(core_.pointer()->depth());
  core_->drive(ended, task, start);
}

}  // namespace remora
