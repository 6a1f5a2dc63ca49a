#include "client/services/poller.h"

#include <algorithm>
#include <array>
#include <sys/epoll.h>
#include <utility>

#include <remora/assert.h>

#include "base/log.h"
#include "base/spin_pause.h"
#include "base/thread_clocks.h"

namespace remora::detail {

ThreadClocks& Poller::cpu_clocks() {
  static auto& clocks = *new ThreadClocks;
  return clocks;
}

Result<std::unique_ptr<Poller>> Poller::start(std::chrono::nanoseconds spin,
                                              const Placement& placement) {
  auto state = std::make_shared<State>();
  state->spin = spin;
  if (auto status = state->service.open(); !status) return status.error();
  state->notifier.attach(state->service.wake_event());
  std::unique_ptr<Poller> poller{new Poller{state}};
  auto thread = ServiceThread::start("remora-poller", state->service, [state, placement] {
    const ThreadClocks::Member counted{cpu_clocks()};
    (void)placement.bind_thread();
    run(*state);
  });
  if (!thread) return thread.error();
  poller->thread_ = std::move(*thread);
  return poller;
}

void Poller::add(PolledQueue& queue) noexcept {
  queue.keep();
  state_->load.fetch_add(1, std::memory_order_relaxed);
  queue.next_ = state_->joining.load(std::memory_order_relaxed);
  while (!state_->joining.compare_exchange_weak(queue.next_, &queue, std::memory_order_release,
                                                std::memory_order_relaxed)) {
  }
  state_->notifier.notify();
}

bool Poller::part_with(PolledQueue& queue, Deadline until) noexcept {
  MutexLock lock{state_->mutex};
  return state_->parted.wait_until(lock, until, [&] { return queue.gone_; });
}

void Poller::post(Resumable& job) noexcept {
  state_->jobs.post(job);
  state_->notifier.notify();
}

void Poller::run(State& state) noexcept {
  Clock::time_point active = Clock::now();
  while (!state.service.stop_requested()) {
    take_joining(state);
    const bool worked = state.jobs.run_all() != 0;
    const bool ended = serve_all(state);
    const Clock::time_point now = Clock::now();
    if (ended || worked) {
      active = now;
    } else if (now - active >= state.spin) {
      sleep(state);
      active = Clock::now();
    } else {
      spin_pause(now - active);
    }
  }
}

/// Takes over the queues that add() has added.
void Poller::take_joining(State& state) noexcept {
  if (state.joining.load(std::memory_order_relaxed) == nullptr) return;
  PolledQueue* joining = state.joining.exchange(nullptr, std::memory_order_acquire);
  while (joining != nullptr) {
    PolledQueue* const next = std::exchange(joining->next_, state.queues);
    state.queues = std::exchange(joining, next);
  }
}

bool Poller::serve_all(State& state) noexcept {
  bool any = false;
  for (PolledQueue** at = &state.queues; *at != nullptr;) {
    PolledQueue& queue = **at;
    any = queue.serve() || any;
    if (queue.over()) {
      *at = queue.next_;
      remove_queue(state, queue);
      any = true;
    } else {
      at = &queue.next_;
    }
  }
  return any;
}

void Poller::remove_queue(State& state, PolledQueue& queue) noexcept {
  queue.leave(state.service.epoll());
  const std::size_t before = state.load.fetch_sub(1, std::memory_order_relaxed);
  REMORA_ASSERT(before > 0, "a poller counts the queues that it serves");
  bool last = false;
  {
    // The queue's owner waits for gone_, and then frees the queue.
    const MutexLock lock{state.mutex};
    REMORA_ASSERT(!queue.gone_, "a queue leaves its poller once");
    queue.gone_ = true;
    last = queue.release();
    state.parted.notify_all();
  }
  // Without the lock: the queue may own the last reference to its region, session and engine, and
  // so to this poller.
  if (last) delete &queue;
}

void Poller::sleep(State& state) noexcept {
  state.notifier.announce_sleep();
  bool ready = state.service.stop_requested() ||
               state.joining.load(std::memory_order_acquire) != nullptr || !state.jobs.empty();
  Deadline until = Deadline::max();
  for (PolledQueue* queue = state.queues; queue != nullptr; queue = queue->next_)
    until = std::min(until, queue->arm(state.service.epoll()));
  for (PolledQueue* queue = state.queues; queue != nullptr; queue = queue->next_)
    ready = ready || queue->ready();
  if (!ready) {
    std::array<epoll_event, 16> events{};
    const int timeout = until == Deadline::max() ? -1 : milliseconds_until(until);
    const int count = ::epoll_wait(state.service.epoll(), events.data(), events.size(), timeout);
    // If notify() signals after epoll_wait() has returned, one later sleep ends at once; that is
    // all.
    for (int i = 0; i < count; ++i)
      if (events[static_cast<std::size_t>(i)].data.ptr == nullptr) state.notifier.take_event();
  }
  state.notifier.announce_awake();
}

}  // namespace remora::detail
