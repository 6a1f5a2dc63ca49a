#include "base/parallel_steps.h"

#include <algorithm>
#include <atomic>
#include <sched.h>
#include <thread>
#include <utility>
#include <vector>

#include <remora/mutex.h>
#include <remora/start_thread.h>

namespace remora::detail {

namespace {

/// Shared by the threads of one run_steps().
class StepQueue {
 public:
  StepQueue(std::size_t count, const std::function<Status(std::size_t)>& step,
            const std::stop_token& stop)
      : count_{count}, step_{step}, stop_{stop} {}

  /// Runs steps until there is none left, one fails, or `stop` comes.
  void take_part(const std::function<void(std::size_t)>& on_step) {
    while (!ends_.load()) {
      const std::size_t index = next_.fetch_add(1);
      if (index >= count_) return;
      if (on_step) on_step(done_.load());
      if (stop_.stop_requested()) return end(std::nullopt);
      if (const Status made = step_(index); !made) return end(made.error());
      done_.fetch_add(1);
    }
  }
  /// When all threads have taken part.
  [[nodiscard]] StepsDone result() {
    const MutexLock lock{mutex_};
    return {.done = done_.load(), .failed = failed_, .stopped = stopped_};
  }

 private:
  /// By an error, or by stop_.
  void end(std::optional<Error> error) {
    const MutexLock lock{mutex_};
    if (!error)
      stopped_ = true;
    else if (!failed_)
      failed_ = error;
    ends_.store(true);
  }

  const std::size_t count_;
  const std::function<Status(std::size_t)>& step_;
  const std::stop_token& stop_;
  std::atomic<std::size_t> next_{0};
  std::atomic<std::size_t> done_{0};
  std::atomic<bool> ends_{false};
  Mutex mutex_;
  std::optional<Error> failed_ REMORA_GUARDED_BY(mutex_);
  bool stopped_ REMORA_GUARDED_BY(mutex_) = false;
};

}  // namespace

StepsDone run_steps(std::size_t count, const std::function<Status(std::size_t index)>& step,
                    const StepOptions& options) {
  StepQueue queue{count, step, options.stop};
  const std::size_t threads =
      std::min(std::max<std::size_t>(options.threads_max, 1), std::max<std::size_t>(count, 1));
  std::vector<std::thread> others;
  others.reserve(threads - 1);
  while (others.size() < threads - 1) {
    auto other = start_thread("remora-pool", [&queue, &options] {
      if (options.on_thread) options.on_thread();
      queue.take_part({});
    });
    if (!other) break;
    others.push_back(std::move(*other));
  }
  queue.take_part(options.on_step);
  for (std::thread& other : others) other.join();
  StepsDone result = queue.result();
  if (options.on_step && !result.failed && !result.stopped) options.on_step(result.done);
  return result;
}

std::size_t usable_processors() noexcept {
  cpu_set_t set{};
  const int count = ::sched_getaffinity(0, sizeof set, &set) == 0
                        ? CPU_COUNT(&set)
                        : static_cast<int>(std::thread::hardware_concurrency());
  return static_cast<std::size_t>(std::max(count, 1));
}

}  // namespace remora::detail
