#include "base/service_thread.h"

#include <cerrno>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <remora/assert.h>
#include <remora/start_thread.h>

namespace remora {

Status ServiceState::open() {
  epoll_ = UniqueFd{::epoll_create1(EPOLL_CLOEXEC)};
  if (!epoll_) return Error{Code::kSystem, "epoll_create1"}.with_errno(errno);
  wake_ = UniqueFd{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  if (!wake_) return Error{Code::kSystem, "eventfd"}.with_errno(errno);
  epoll_event event{.events = EPOLLIN, .data = {.u64 = 0}};
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), &event) != 0)
    return Error{Code::kSystem, "epoll_ctl"}.with_errno(errno);
  return {};
}

void ServiceState::clear_wake() noexcept {
  eventfd_t value = 0;
  ::eventfd_read(wake_.get(), &value);
}

Result<ServiceThread> ServiceThread::start(const char* name, ServiceState& state,
                                           std::function<void()> body) {
  REMORA_ASSERT(state.wake_event() >= 0, "the state of a service thread is open");
  auto thread = detail::start_thread(name, [shared = &state, run = std::move(body)] {
    shared->thread_id_.store(std::this_thread::get_id(), std::memory_order_relaxed);
    run();
  });
  if (!thread) return thread.error();
  return ServiceThread{state, std::move(*thread)};
}

ServiceThread& ServiceThread::operator=(ServiceThread&& other) noexcept {
  if (this == &other) return *this;
  stop();
  state_ = std::exchange(other.state_, nullptr);
  thread_ = std::move(other.thread_);
  return *this;
}

void ServiceThread::stop() noexcept {
  if (!thread_.joinable()) return;
  state_->request_stop();
  if (thread_.get_id() == std::this_thread::get_id())
    thread_.detach();
  else
    thread_.join();
}

}  // namespace remora
