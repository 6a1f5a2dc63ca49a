#pragma once

/// Threads of a server that register memory of grants and of the pool, which may take seconds: the
/// worker serves other requests meanwhile.

#include <cstddef>
#include <deque>
#include <functional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include <remora/mutex.h>

namespace remora::detail {

/// Thread-safe, except stop().
class RegistrationThreads {
 public:
  using Job = std::function<void()>;
  /// The most threads. More would wait for the kernel, which pins the pages of one process one
  /// after the other.
  static constexpr std::size_t kMaxThreads = 4;

  RegistrationThreads() = default;
  ~RegistrationThreads() { stop(); }
  RegistrationThreads(const RegistrationThreads&) = delete;
  RegistrationThreads& operator=(const RegistrationThreads&) = delete;

  /// Jobs begin in the order of the calls; of the jobs of one `group` that is not empty, one runs
  /// at a time. Use one group for jobs that would only wait for each other: they occupy no thread
  /// meanwhile. A thread is started when it is needed and ends when no job can begin: an idle
  /// server has none. False: no thread could be started, or stop() was called; the caller runs the
  /// job itself.
  [[nodiscard]] bool enqueue(Job job, std::string group = {}) REMORA_EXCLUDES(mutex_);
  /// For the jobs: once it says so, the memory is needed no longer, and a job ends as soon as the
  /// device has answered.
  [[nodiscard]] std::stop_token stop_token() const noexcept { return stop_.get_token(); }
  /// Tells the jobs to end, by stop_token(). Those that wait run, too.
  void cancel() noexcept { stop_.request_stop(); }
  /// **Blocks** until no job waits or runs. False: there was no job.
  bool drain() noexcept REMORA_EXCLUDES(mutex_);
  /// Runs the waiting jobs, then ends the threads. Idempotent.
  void stop() noexcept REMORA_EXCLUDES(mutex_);

 private:
  struct Waiting {
    Job job;
    std::string group;
  };
  using Jobs = std::deque<Waiting>;

  void run() noexcept REMORA_EXCLUDES(mutex_);
  /// The first job that may begin, or the end of jobs_.
  [[nodiscard]] Jobs::iterator next_job() noexcept REMORA_REQUIRES(mutex_);
  [[nodiscard]] bool start_one() REMORA_REQUIRES(mutex_);
  void join_ended() noexcept REMORA_REQUIRES(mutex_);
  void end_this_one() noexcept REMORA_REQUIRES(mutex_);

  std::stop_source stop_;
  Mutex mutex_;
  Condition changed_;
  /// While a job waits, threads_ has at least one thread, if only that of a job of its group.
  Jobs jobs_ REMORA_GUARDED_BY(mutex_);
  std::size_t running_ REMORA_GUARDED_BY(mutex_) = 0;
  /// The groups of the running jobs; each belongs to its thread.
  std::vector<const std::string*> running_groups_ REMORA_GUARDED_BY(mutex_);
  bool stopping_ REMORA_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_ REMORA_GUARDED_BY(mutex_);
  /// Threads that have ended and must be joined: at most kMaxThreads, since no other thread starts
  /// before.
  std::vector<std::thread> ended_ REMORA_GUARDED_BY(mutex_);
};

}  // namespace remora::detail
