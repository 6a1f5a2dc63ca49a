#pragma once

/// The worker of a server: one thread that runs jobs in the order in which they come. The jobs of
/// clients that connect, or have lost their connection, have an order of their own, behind the
/// others.
///
/// It serves all requests, some of which populate memory. State that only jobs use needs no lock. A
/// request whose memory must be registered (RegistrationThreads), or that waits for another
/// request, is answered later, by another job.

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <thread>

#include <remora/mutex.h>
#include <remora/result.h>

#include "base/clock.h"

namespace remora::detail {

/// Thread-safe, except start() and stop().
class Worker {
 public:
  using Job = std::function<void()>;

  Worker() = default;
  ~Worker() { stop(); }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// `before_end`: when the worker is to stop and no job is left, it calls this function until it
  /// returns false; the function may add jobs, and returns whether it has done anything. Errors:
  /// see start_thread().
  Status start(std::function<bool()> before_end);
  /// False: the worker has ended, and the job is dropped.
  bool enqueue(Job job) REMORA_EXCLUDES(mutex_);
  /// The same for a job of a client that connects, or has lost its connection: when very many do so
  /// at once, the others are served meanwhile. Such jobs run in their order, when no other job
  /// waits, and one of them at least after each kMaxOvertaking other jobs.
  bool enqueue_connecting(Job job) REMORA_EXCLUDES(mutex_);
  static constexpr std::uint32_t kMaxOvertaking = 16;
  /// Runs the waiting jobs, then ends. Idempotent.
  void stop() noexcept REMORA_EXCLUDES(mutex_);

  /// How long the present job has run; 0: no job runs.
  [[nodiscard]] std::chrono::seconds job_age() const noexcept;
  /// The time since the present job began, or made its last step; 0: no job runs.
  [[nodiscard]] std::chrono::seconds progress_age() const noexcept;
  /// The present job, which takes long, has made a step. Called by the worker.
  void note_step() noexcept {
    stepped_.store(Clock::now().time_since_epoch().count(), std::memory_order_relaxed);
  }
  [[nodiscard]] std::size_t jobs_waiting() const REMORA_EXCLUDES(mutex_);

 private:
  void run() noexcept REMORA_EXCLUDES(mutex_);
  bool enqueue_in(std::deque<Job> Worker::*queue, Job job) REMORA_EXCLUDES(mutex_);
  [[nodiscard]] bool idle() const REMORA_REQUIRES(mutex_) {
    return jobs_.empty() && connecting_.empty();
  }
  [[nodiscard]] Job take_next() REMORA_REQUIRES(mutex_);

  std::function<bool()> before_end_;
  mutable Mutex mutex_;
  Condition changed_;
  std::deque<Job> jobs_ REMORA_GUARDED_BY(mutex_);
  std::deque<Job> connecting_ REMORA_GUARDED_BY(mutex_);
  /// Jobs that have run while one of connecting_ waited, since the last one of those.
  std::uint32_t overtaking_ REMORA_GUARDED_BY(mutex_) = 0;
  bool stopping_ REMORA_GUARDED_BY(mutex_) = false;
  bool ended_ REMORA_GUARDED_BY(mutex_) = false;
  std::atomic<Clock::rep> job_began_{0};  ///< 0: no job runs
  std::atomic<Clock::rep> stepped_{0};    ///< see note_step()
  std::thread thread_;
};

}  // namespace remora::detail
