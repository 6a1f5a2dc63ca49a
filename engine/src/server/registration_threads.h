#pragma once

/// Threads of a server that register the memory of grants, which may take seconds: the worker
/// serves other requests meanwhile.

#include <cstddef>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include <remora/mutex.h>

namespace remora::detail {

/// Thread-safe, but for stop().
class RegistrationThreads {
 public:
  using Job = std::function<void()>;
  /// More of them wait for the kernel, which pins the pages of one process one after the other.
  static constexpr std::size_t kMaxThreads = 4;

  RegistrationThreads() = default;
  ~RegistrationThreads() { stop(); }
  RegistrationThreads(const RegistrationThreads&) = delete;
  RegistrationThreads& operator=(const RegistrationThreads&) = delete;

  /// Jobs begin in the order in which they come. A thread is started when it is needed and ends
  /// when no job waits: an idle server has none. False: no thread could be started, or stop() was
  /// called; the caller does the job.
  [[nodiscard]] bool enqueue(Job job) REMORA_EXCLUDES(mutex_);
  /// **Blocks** until no job waits or runs. False: there was none.
  bool drain() noexcept REMORA_EXCLUDES(mutex_);
  /// Runs the jobs that wait, then ends. Idempotent.
  void stop() noexcept REMORA_EXCLUDES(mutex_);

 private:
  void run() noexcept REMORA_EXCLUDES(mutex_);
  [[nodiscard]] bool start_one() REMORA_REQUIRES(mutex_);
  void join_ended() noexcept REMORA_REQUIRES(mutex_);
  void end_this_one() noexcept REMORA_REQUIRES(mutex_);

  Mutex mutex_;
  Condition changed_;
  /// While a job waits, there is a thread in threads_.
  std::deque<Job> jobs_ REMORA_GUARDED_BY(mutex_);
  std::size_t running_ REMORA_GUARDED_BY(mutex_) = 0;
  bool stopping_ REMORA_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_ REMORA_GUARDED_BY(mutex_);
  /// Those that have ended, to be joined: kMaxThreads at most, for no other is started before.
  std::vector<std::thread> ended_ REMORA_GUARDED_BY(mutex_);
};

}  // namespace remora::detail
