#pragma once

/// Work on the groups of a volume, several at once.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <remora/mutex.h>
#include <remora/volume/management.h>

namespace remora::volume::detail {

/// Carries out jobs, each on the caller's thread or on one of its own (`remora-groups`). A job
/// that fails is noted, and the others go on; some failures end the work. One caller.
class GroupJobs {
 public:
  using Job = std::function<Managed<void>()>;
  /// By the index of the job; empty: it has succeeded, or was never begun.
  using Failures = std::vector<std::optional<Failure>>;
  /// The failure with which the whole work ends because of this one of a job; empty: it goes on.
  /// Called by any of the threads, one call at a time.
  using Judge = std::function<std::optional<Failure>(const Failure&)>;

  explicit GroupJobs(Judge judge) : judge_{std::move(judge)} {}

  /// Begins the jobs `chosen` in their order, at most `at_once` of them at once, and blocks until
  /// all that were begun have ended. With one at once they run on the caller's thread, also if no
  /// other can be started. Sets failures[i] for each job i that has ended. After a failure that
  /// ends the work no job is begun, also by later calls; ended() tells those that run. Errors: the
  /// first such failure.
  Managed<void> run(std::span<const Job> jobs, std::span<const std::size_t> chosen,
                    std::size_t at_once, Failures& failures);

  /// Whether a failure has ended the work. Any thread.
  [[nodiscard]] bool ended() const noexcept { return ended_.load(std::memory_order_relaxed); }

 private:
  /// The jobs of one call of run().
  struct Batch {
    std::span<const Job> jobs{};
    std::span<const std::size_t> chosen{};
    std::size_t next = 0;
    Failures* failures = nullptr;
  };

  /// Carries out job after job.
  void work();
  /// The next job; empty: there is none, or the work has ended.
  std::optional<std::size_t> next();
  [[nodiscard]] const Job& job(std::size_t index);
  void end_job(std::size_t index, const Managed<void>& done);

  const Judge judge_;
  std::atomic<bool> ended_{false};
  remora::detail::Mutex mutex_;
  Batch batch_ REMORA_GUARDED_BY(mutex_);
  std::optional<Failure> end_ REMORA_GUARDED_BY(mutex_);
};

}  // namespace remora::volume::detail
