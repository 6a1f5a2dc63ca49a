#include "server/worker.h"

#include <algorithm>
#include <utility>

#include <remora/assert.h>
#include <remora/start_thread.h>

namespace remora::detail {

Status Worker::start(std::function<bool()> before_end) {
  before_end_ = std::move(before_end);
  auto thread = start_thread("remora-worker", [this] { run(); });
  if (!thread) return thread.error();
  thread_ = std::move(*thread);
  return {};
}

bool Worker::enqueue_in(std::deque<Job> Worker::*queue, Job job) {
  {
    const MutexLock lock{mutex_};
    if (ended_) return false;
    (this->*queue).push_back(std::move(job));
  }
  changed_.notify_one();
  return true;
}

bool Worker::enqueue(Job job) { return enqueue_in(&Worker::jobs_, std::move(job)); }

bool Worker::enqueue_connecting(Job job) {
  return enqueue_in(&Worker::connecting_, std::move(job));
}

Worker::Job Worker::take_next() {
  const bool is_turn = !connecting_.empty() && overtaking_ >= kMaxOvertaking;
  const bool connecting = jobs_.empty() || is_turn;
  overtaking_ = connecting || connecting_.empty() ? 0 : overtaking_ + 1;
  std::deque<Job>& queue = connecting ? connecting_ : jobs_;
  REMORA_ASSERT(!queue.empty(), "a job is taken where one waits");
  Job job = std::move(queue.front());
  queue.pop_front();
  return job;
}

void Worker::stop() noexcept {
  {
    const MutexLock lock{mutex_};
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Worker::run() noexcept {
  MutexLock lock{mutex_};
  while (true) {
    changed_.wait(lock, [this] {
      mutex_.assert_held();
      return stopping_ || !idle();
    });
    if (idle()) {
      lock.unlock();
      const bool more = before_end_();
      lock.lock();
      if (more || !idle()) continue;
      ended_ = true;  // other threads release sessions from now on
      return;
    }
    {
      const Job job = take_next();
      lock.unlock();
      job_began_.store(Clock::now().time_since_epoch().count(), std::memory_order_relaxed);
      job();
      job_began_.store(0, std::memory_order_relaxed);
    }  // destroys the job before the next one begins
    lock.lock();
  }
}

std::chrono::seconds Worker::job_age() const noexcept {
  const Clock::rep began = job_began_.load(std::memory_order_relaxed);
  if (began == 0) return {};
  return std::chrono::duration_cast<std::chrono::seconds>(
      Clock::now() - Clock::time_point{Clock::duration{began}});
}

std::chrono::seconds Worker::progress_age() const noexcept {
  const Clock::rep began = job_began_.load(std::memory_order_relaxed);
  if (began == 0) return {};
  const Clock::rep latest = std::max(began, stepped_.load(std::memory_order_relaxed));
  return std::chrono::duration_cast<std::chrono::seconds>(
      Clock::now() - Clock::time_point{Clock::duration{latest}});
}

std::size_t Worker::jobs_waiting() const {
  const MutexLock lock{mutex_};
  return jobs_.size() + connecting_.size();
}

}  // namespace remora::detail
