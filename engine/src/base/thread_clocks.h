#pragma once

/// CPU time of one kind of threads of this process.

#include <pthread.h>
#include <time.h>
#include <vector>

#include <remora/mutex.h>

namespace remora::detail {

/// The CPU time of all threads that have joined, also of those that have ended. Thread-safe. An
/// object of this class must never be destroyed, since threads and registries may live longer than
/// static objects.
class ThreadClocks {
 public:
  /// Counts the CPU time of the thread that makes this object, until that thread destroys it.
  class Member {
   public:
    explicit Member(ThreadClocks& clocks) : clocks_{clocks} {
      joined_ = ::pthread_getcpuclockid(::pthread_self(), &own_) == 0;
      if (joined_) clocks_.add(own_);
    }
    ~Member() {
      if (joined_) clocks_.remove(own_);
    }
    Member(const Member&) = delete;
    Member& operator=(const Member&) = delete;

   private:
    ThreadClocks& clocks_;
    clockid_t own_{};
    bool joined_ = false;
  };

  [[nodiscard]] double seconds() const {
    const MutexLock lock{mutex_};
    double sum = ended_seconds_;
    for (const clockid_t clock : running_) sum += seconds_of(clock);
    return sum;
  }

 private:
  static double seconds_of(clockid_t clock) noexcept {
    timespec used{};
    if (::clock_gettime(clock, &used) != 0) return 0;
    return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) / 1e9;
  }
  void add(clockid_t clock) {
    const MutexLock lock{mutex_};
    running_.push_back(clock);
  }
  void remove(clockid_t own) noexcept {
    const MutexLock lock{mutex_};
    if (std::erase(running_, own) != 0) ended_seconds_ += seconds_of(own);
  }

  mutable Mutex mutex_;
  std::vector<clockid_t> running_ REMORA_GUARDED_BY(mutex_);
  double ended_seconds_ REMORA_GUARDED_BY(mutex_) = 0;
};

}  // namespace remora::detail
