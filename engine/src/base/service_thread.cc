#include "base/service_thread.h"

#include <remora/assert.h>
#include <remora/start_thread.h>

namespace remora {

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
