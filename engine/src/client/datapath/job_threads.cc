#include "client/datapath/job_threads.h"

#include <remora/start_thread.h>

#include "base/log.h"

namespace remora::detail {

Result<std::shared_ptr<JobThreads>> JobThreads::start(std::size_t threads,
                                                      const Placement& placement) {
  const auto state = std::make_shared<State>();
  const std::shared_ptr<JobThreads> made{new JobThreads{state}};
  made->threads_.reserve(threads);
  while (made->threads_.size() < threads) {
    auto thread = start_thread("remora-arena", [state, placement] {
      (void)placement.bind_thread();
      run(*state);
    });
    if (!thread && made->threads_.empty()) return thread.error();
    if (!thread) {
      log::warn({"client.threads_missing", "threads wanted reason"},
                "{} of {} threads for coroutines: {}", made->threads_.size(), threads,
                thread.error().message());
      break;
    }
    made->threads_.push_back(std::move(*thread));
  }
  return made;
}

JobThreads::~JobThreads() {
  {
    const MutexLock lock{state_->mutex};
    state_->stop = true;
  }
  state_->more.notify_all();
  for (std::thread& thread : threads_)
    if (thread.get_id() == std::this_thread::get_id())
      thread.detach();
    else
      thread.join();
}

void JobThreads::post(Resumable& job) noexcept {
  job.next = nullptr;
  {
    const MutexLock lock{state_->mutex};
    (state_->last == nullptr ? state_->first : state_->last->next) = &job;
    state_->last = &job;
  }
  state_->more.notify_one();
}

void JobThreads::run(State& state) noexcept {
  MutexLock lock{state.mutex};
  while (true) {
    state.more.wait(lock, [&state] {
      state.mutex.assert_held();
      return state.stop || state.first != nullptr;
    });
    Resumable* const job = state.first;
    if (job == nullptr) return;
    state.first = job->next;
    if (state.first == nullptr) state.last = nullptr;
    lock.unlock();
    job->run(*job);
    lock.lock();
  }
}

}  // namespace remora::detail
