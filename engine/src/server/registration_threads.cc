#include "server/registration_threads.h"

#include <utility>

#include <remora/start_thread.h>

#include "base/log.h"

namespace remora::detail {

bool RegistrationThreads::enqueue(Job job) {
  {
    const MutexLock lock{mutex_};
    if (stopping_) return false;
    const std::size_t free = threads_.size() - running_;
    if (jobs_.size() >= free && threads_.size() < kMaxThreads && !start_one() && threads_.empty())
      return false;
    jobs_.push_back(std::move(job));
  }
  changed_.notify_one();
  return true;
}

bool RegistrationThreads::start_one() {
  auto thread = start_thread("remora-register", [this] { run(); });
  if (!thread) {
    log::debug("registrations: {}", thread.error().message());
    return false;
  }
  threads_.push_back(std::move(*thread));
  return true;
}

bool RegistrationThreads::drain() noexcept {
  MutexLock lock{mutex_};
  if (jobs_.empty() && running_ == 0) return false;
  idle_.wait(lock, [this] {
    mutex_.assert_held();
    return jobs_.empty() && running_ == 0;
  });
  return true;
}

void RegistrationThreads::stop() noexcept {
  std::vector<std::thread> ending;
  {
    const MutexLock lock{mutex_};
    stopping_ = true;
    ending.swap(threads_);
  }
  changed_.notify_all();
  for (std::thread& thread : ending) thread.join();
}

void RegistrationThreads::run() noexcept {
  MutexLock lock{mutex_};
  while (true) {
    changed_.wait(lock, [this] {
      mutex_.assert_held();
      return stopping_ || !jobs_.empty();
    });
    if (jobs_.empty()) return;
    {
      const Job job = std::move(jobs_.front());
      jobs_.pop_front();
      ++running_;
      lock.unlock();
      job();
    }  // destroys the job before it counts as done
    lock.lock();
    if (--running_ == 0 && jobs_.empty()) idle_.notify_all();
  }
}

}  // namespace remora::detail
