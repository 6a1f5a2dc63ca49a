#include "server/registration_threads.h"

#include <algorithm>
#include <utility>

#include <remora/assert.h>
#include <remora/start_thread.h>

#include "base/log.h"

namespace remora::detail {

bool RegistrationThreads::enqueue(Job job, std::string group) {
  const MutexLock lock{mutex_};
  if (stopping_) return false;
  join_ended();
  REMORA_ASSERT(running_ <= threads_.size(), "a thread runs one job at a time");
  const std::size_t free = threads_.size() - running_;
  if (jobs_.size() >= free && threads_.size() < kMaxThreads && !start_one() && threads_.empty())
    return false;
  jobs_.push_back({std::move(job), std::move(group)});
  return true;
}

RegistrationThreads::Jobs::iterator RegistrationThreads::next_job() noexcept {
  return std::find_if(jobs_.begin(), jobs_.end(), [this](const Waiting& each) {
    mutex_.assert_held();
    return each.group.empty() ||
           std::none_of(running_groups_.begin(), running_groups_.end(),
                        [&](const std::string* running) { return *running == each.group; });
  });
}

bool RegistrationThreads::start_one() {
  // So that a thread that begins a job or ends allocates nothing.
  ended_.reserve(kMaxThreads);
  running_groups_.reserve(kMaxThreads);
  auto thread = start_thread("remora-register", [this] { run(); });
  if (!thread) {
    log::debug("registrations: {}", thread.error().message());
    return false;
  }
  threads_.push_back(std::move(*thread));
  return true;
}

void RegistrationThreads::end_this_one() noexcept {
  const auto own = std::find_if(threads_.begin(), threads_.end(), [](const std::thread& thread) {
    return thread.get_id() == std::this_thread::get_id();
  });
  REMORA_ASSERT(own != threads_.end(), "a thread that ends is one of those that were started");
  ended_.push_back(std::move(*own));
  threads_.erase(own);
}

/// These threads have released the lock, which this thread holds.
void RegistrationThreads::join_ended() noexcept {
  for (std::thread& thread : ended_) thread.join();
  ended_.clear();
}

bool RegistrationThreads::drain() noexcept {
  MutexLock lock{mutex_};
  if (jobs_.empty() && running_ == 0) return false;
  changed_.wait(lock, [this] {
    mutex_.assert_held();
    return jobs_.empty() && running_ == 0;
  });
  return true;
}

void RegistrationThreads::stop() noexcept {
  MutexLock lock{mutex_};
  stopping_ = true;
  changed_.wait(lock, [this] {
    mutex_.assert_held();
    return threads_.empty();
  });
  REMORA_ASSERT(jobs_.empty() && running_ == 0, "the last thread ends when no job is left");
  join_ended();
}

void RegistrationThreads::run() noexcept {
  MutexLock lock{mutex_};
  for (auto next = next_job(); next != jobs_.end(); next = next_job()) {
    const std::string group = std::move(next->group);
    running_groups_.push_back(&group);
    {
      const Job job = std::move(next->job);
      jobs_.erase(next);
      ++running_;
      lock.unlock();
      job();
    }  // destroys the job before it counts as done
    lock.lock();
    --running_;
    const std::size_t was_running = std::erase(running_groups_, &group);
    REMORA_ASSERT(was_running == 1, "the group of a job runs until the job has ended");
  }
  end_this_one();
  changed_.notify_all();
}

}  // namespace remora::detail
