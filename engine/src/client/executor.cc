#include <algorithm>
#include <exception>
#include <poll.h>
#include <utility>

#include <remora/engine/executor.h>
#include <remora/engine/region.h>

#include "client/executor_core.h"

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

Result<ExecutorCore::Lane*> ExecutorCore::lane_of(const std::shared_ptr<RegionCore>& region) {
  for (const auto& lane : lanes_)
    if (lane->region == region) return lane.get();
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
  auto lane = lane_of(operation.region_);
  if (!lane) return lane.error();
  (*lane)->waiting.push_back(&operation);
  return {};
}

/// Moves what waits into the queue, as far as there is room.
void ExecutorCore::fill(Lane& lane) {
  while (!lane.waiting.empty() && !lane.free.empty()) {
    AsyncOperation& operation = *lane.waiting.front();
    lane.waiting.pop_front();
    const std::uint32_t tag = lane.free.back();
    lane.free.pop_back();
    lane.in_flight[tag] = &operation;
    operation.index_ = tag;
    using Kind = AsyncOperation::Kind;
    const bool atomic = operation.kind_ == Kind::kCompareSwap || operation.kind_ == Kind::kFetchAdd;
    if (atomic) {
      lane.queue->take(
          {.compare_or_add = operation.operand_,
           .swap = operation.swap_,
           .opcode = operation.kind_ == Kind::kCompareSwap ? transport::Opcode::kCompareSwap
                                                           : transport::Opcode::kFetchAdd},
          operation.offset_, sizeof(std::uint64_t), tag);
    } else {
      lane.queue->take_slot(
          operation.kind_ == Kind::kRead ? transport::Opcode::kRead : transport::Opcode::kWrite,
          operation.offset_, operation.slot_, tag);
    }
  }
}

void ExecutorCore::forget(AsyncOperation& operation) noexcept {
  forget(operation.waiter_);
  for (const auto& lane : lanes_) {
    if (lane->region != operation.region_) continue;
    if (std::erase(lane->waiting, &operation) != 0) return;
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
    operation->slot_ = std::move(completion.slot());
    ready_.push_back(operation->waiter_);
  }
}

/// Submits what was awaited and takes what has completed; true when a coroutine may go on.
bool ExecutorCore::poll() {
  for (const auto& lane : lanes_) {
    fill(*lane);
    (void)lane->queue->submit();
    if (lane->queue->size() != 0) take_completions(*lane, lane->queue->wait(0));
  }
  return !ready_.empty();
}

void ExecutorCore::wait_for_any() {
  std::vector<Lane*> busy;
  for (const auto& lane : lanes_)
    if (lane->queue->size() != 0) busy.push_back(lane.get());
  if (busy.empty()) std::terminate();  // nobody will ever resume the task
  if (busy.size() == 1) return take_completions(*busy.front(), busy.front()->queue->wait(1));
  for (int i = 0; i < kPollRounds; ++i)
    if (poll()) return;
  std::vector<pollfd> events;
  Deadline earliest = Clock::now() + std::chrono::milliseconds{100};
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
    if (ready_.empty() && !poll()) wait_for_any();
    // Those that become ready meanwhile have their turn after what they wait for was submitted.
    for (std::size_t left = ready_.size(); left != 0 && !ended(task); --left) {
      const std::coroutine_handle<> next = ready_.front();
      ready_.pop_front();
      next.resume();
    }
  }
  ready_.clear();
  lanes_.clear();
}

AsyncOperation::AsyncOperation(std::shared_ptr<RegionCore> region, Kind kind,
                               ByteOffset offset) noexcept
    : region_{std::move(region)}, offset_{offset}, kind_{kind} {}

AsyncOperation::~AsyncOperation() {
  if (executor_ != nullptr) executor_->forget(*this);
}

bool AsyncOperation::await_suspend(std::coroutine_handle<> waiter) noexcept {
  ExecutorCore* const executor = ExecutorCore::current();
  if (executor == nullptr) {
    status_ = Error{Code::kInvalidArgument, "co_await"}.with_subject("outside of Executor::run()");
    return false;
  }
  waiter_ = waiter;
  status_ = executor->take(*this);
  if (status_) executor_ = executor;
  return status_.ok();
}

}  // namespace remora::detail

namespace remora {

using detail::ExecutorCore;

AsyncTransfer AsyncRegion::read(Block from, Slot&& into) const noexcept {
  return read(detail::offset_of(from, core_->info()), std::move(into));
}
AsyncTransfer AsyncRegion::write(Block to, Slot&& from) const noexcept {
  return write(detail::offset_of(to, core_->info()), std::move(from));
}
AsyncRegion Region::async() const noexcept { return AsyncRegion{core_}; }

Executor::Executor(const ExecutorOptions& options)
    : core_{std::make_unique<ExecutorCore>(
          std::clamp<std::size_t>(options.depth, 1, kQueueDepthMax))} {}
Executor::~Executor() = default;

void Executor::drive(bool (*ended)(void*) noexcept, void* task, void (*start)(void*)) {
  core_->drive(ended, task, start);
}

struct Scope::Core {
  struct Child {
    Task<bool> task;
    bool ended = true;
  };
  std::vector<Child> children;
  std::size_t running = 0;
  std::coroutine_handle<> waiter;  ///< spawn() or join(), waiting for an end
  std::coroutine_handle<> latest;  ///< the same, also after it was told of one
  Status first;

  /// Waits until at most `most` children run.
  auto until(std::size_t most) {
    struct Awaiter {
      Core& core;
      std::size_t most;
      [[nodiscard]] bool await_ready() const noexcept { return core.running <= most; }
      void await_suspend(std::coroutine_handle<> who) const noexcept {
        core.waiter = core.latest = who;
      }
      // From here on the handle may be another coroutine's.
      void await_resume() const noexcept { core.latest = {}; }
    };
    return Awaiter{*this, most};
  }
  Task<bool> follow(std::size_t index, Task<Status> task) {
    const Status status = co_await std::move(task);
    if (!status && first) first = status;
    children[index].ended = true;
    --running;
    // Not resumed from here: it may destroy this coroutine, to put another in its place.
    if (waiter) ExecutorCore::current()->resume_later(std::exchange(waiter, {}));
    co_return status.ok();
  }
};

Scope::Scope(std::size_t limit) : core_{std::make_unique<Core>()} {
  core_->children.resize(std::max<std::size_t>(1, limit));
}

Scope::~Scope() {
  if (ExecutorCore* const executor = ExecutorCore::current(); executor != nullptr && core_->latest)
    executor->forget(core_->latest);
}

Task<bool> Scope::spawn(Task<Status> task) {
  while (core_->running == core_->children.size())
    co_await core_->until(core_->children.size() - 1);
  if (!core_->first) co_return false;
  const auto free = std::find_if(core_->children.begin(), core_->children.end(),
                                 [](const Core::Child& child) { return child.ended; });
  const auto index = static_cast<std::size_t>(free - core_->children.begin());
  free->ended = false;
  ++core_->running;
  free->task = core_->follow(index, std::move(task));
  free->task.start();
  co_return true;
}

Task<Status> Scope::join() {
  while (core_->running != 0) co_await core_->until(0);
  co_return core_->first;
}

}  // namespace remora
