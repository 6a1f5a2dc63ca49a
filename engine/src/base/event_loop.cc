#include "base/event_loop.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <future>
#include <new>
#include <utility>

#include <remora/assert.h>

namespace remora {

namespace {

/// In the tokens of handlers that come last.
constexpr EventLoop::Token kLastBit = EventLoop::Token{1} << 63U;

}  // namespace

Result<std::unique_ptr<EventLoop>> EventLoop::start(const char* thread_name, Handler first) {
  auto state = std::make_shared<State>();
  if (auto status = state->service.open(); !status) return status.error();
  std::unique_ptr<EventLoop> loop{new EventLoop{state}};
  auto thread =
      ServiceThread::start(thread_name, state->service, [state, first = std::move(first)] {
        if (first) first();
        run(*state);
        end(*state);
      });
  if (!thread) return thread.error();
  loop->thread_ = std::move(*thread);
  return loop;
}

EventLoop::~EventLoop() {
  if (is_loop_thread()) {
    const detail::MutexLock lock{state_->mutex};
    if (state_->partings != 0) {
      state_->service.request_stop();
      state_->left = thread_.release();
      return;
    }
  }
  stop();
}

void EventLoop::stop() noexcept { thread_.stop(); }

Result<EventLoop::Token> EventLoop::watch(int fd, Handler handler, Turn turn) {
  const detail::MutexLock lock{state_->mutex};
  const Token token = state_->next_token++ | (turn == Turn::kLast ? kLastBit : 0);
  epoll_event event{.events = EPOLLIN | EPOLLRDHUP, .data = {.u64 = token}};
  if (::epoll_ctl(state_->service.epoll(), EPOLL_CTL_ADD, fd, &event) != 0)
    return Error{Code::kSystem, "epoll_ctl"}.with_errno(errno);
  state_->watches.emplace(token, Watch{fd, std::make_shared<Handler>(std::move(handler))});
  return token;
}

void EventLoop::drop(Token token) noexcept {
  const detail::MutexLock lock{state_->mutex};
  const auto found = state_->watches.find(token);
  if (found == state_->watches.end()) return;
  ::epoll_ctl(state_->service.epoll(), EPOLL_CTL_DEL, found->second.fd, nullptr);
  state_->watches.erase(found);
}

void EventLoop::forget(Token token) noexcept {
  drop(token);
  if (!is_loop_thread()) const detail::MutexLock wait_for_handler{state_->running};
}

void EventLoop::every(std::chrono::milliseconds period, Handler task) {
  {
    const detail::MutexLock lock{state_->mutex};
    state_->period = period;
    state_->periodic = std::move(task);
  }
  state_->service.wake();
}

void EventLoop::run_soon(Handler task) {
  {
    const detail::MutexLock lock{state_->mutex};
    state_->soon.push_back(std::move(task));
  }
  state_->service.wake();
}

void EventLoop::run_all_soon(State& state) noexcept {
  std::vector<Handler> tasks;
  {
    const detail::MutexLock lock{state.mutex};
    tasks.swap(state.soon);
  }
  const detail::MutexLock running{state.running};
  for (Handler& task : tasks) {
    task();
    task = {};
  }
}

void EventLoop::dispatch(State& state, Token token) noexcept {
  // Locked before the look-up, so that a handler that was forgotten in between is not called.
  const detail::MutexLock running{state.running};
  std::shared_ptr<Handler> handler;
  {
    const detail::MutexLock lock{state.mutex};
    const auto found = state.watches.find(token);
    if (found == state.watches.end()) return;
    handler = found->second.handler;
  }
  (*handler)();
}

void EventLoop::dispatch_all(State& state, std::span<const epoll_event> events,
                             Turn turn) noexcept {
  for (const epoll_event& event : events) {
    const Token token = event.data.u64;
    if (((token & kLastBit) != 0) != (turn == Turn::kLast)) continue;
    if (state.service.stop_requested()) return;
    if (token == 0) {
      state.service.clear_wake();
      run_all_soon(state);
    } else {
      dispatch(state, token);
    }
  }
}

void EventLoop::run(State& state) noexcept {
  Clock::time_point next = Clock::now();
  while (!state.service.stop_requested()) {
    std::chrono::milliseconds period{0};
    Handler periodic;
    {
      const detail::MutexLock lock{state.mutex};
      period = state.period;
      periodic = state.periodic;
    }
    const int timeout = periodic ? milliseconds_until(next) : -1;
    std::array<epoll_event, 32> events{};
    const int count = ::epoll_wait(state.service.epoll(), events.data(), events.size(), timeout);
    const auto ready = std::span{events}.first(static_cast<std::size_t>(std::max(count, 0)));
    dispatch_all(state, ready, Turn::kAny);
    dispatch_all(state, ready, Turn::kLast);
    if (periodic && !state.service.stop_requested() && Clock::now() >= next) {
      next = Clock::now() + period;
      const detail::MutexLock running{state.running};
      periodic();
    }
  }
}

void EventLoop::end(State& state) noexcept {
  std::vector<Handler> never;
  const detail::MutexLock lock{state.mutex};
  state.ended = true;
  never.swap(state.soon);
}

EventLoop::Parting::Parting(const EventLoop& loop) noexcept : state_{loop.state_} {
  const detail::MutexLock lock{state_->mutex};
  ++state_->partings;
}

EventLoop::Parting::~Parting() {
  const bool own_thread = state_->service.is_this_thread();
  if (!own_thread) wait();
  std::thread left;
  {
    const detail::MutexLock lock{state_->mutex};
    REMORA_ASSERT(state_->partings > 0, "each Parting is counted until its destructor");
    if (--state_->partings == 0) left.swap(state_->left);
  }
  if (!left.joinable()) return;
  if (own_thread)
    left.detach();
  else
    left.join();
}

void EventLoop::Parting::wait() noexcept {
  std::future<void> passed;
  try {
    // If the thread ends before it runs the task, the promise is broken, and the future is ready.
    const auto here = std::make_shared<std::promise<void>>();
    passed = here->get_future();
    const detail::MutexLock lock{state_->mutex};
    if (state_->ended) return;
    state_->soon.emplace_back([here] { here->set_value(); });
  } catch (const std::bad_alloc&) {
    return;
  }
  state_->service.wake();
  passed.wait();
}

}  // namespace remora
