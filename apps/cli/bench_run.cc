#include "cli/bench_run.h"

#include <algorithm>
#include <sys/resource.h>
#include <thread>

#include <remora/start_thread.h>

#include "cli/interrupt.h"

namespace remora::apps {
namespace {

using RunClock = BenchPlan::Clock;
using RunSeconds = std::chrono::duration<double>;

double process_cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

RunClock::duration whole(double seconds) {
  return std::chrono::duration_cast<RunClock::duration>(RunSeconds{seconds});
}

/// The threads of a run. The destructor stops them and waits for them in any case.
class Crew {
 public:
  Crew(std::vector<BenchWorker>& workers, const BenchPlan& plan)
      : workers_{workers}, plan_{plan}, running_{workers.size()} {}
  ~Crew() { stop(); }
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  /// Starts all threads or none: fewer would measure something else.
  Status start() {
    threads_.reserve(workers_.size());
    for (BenchWorker& worker : workers_) {
      auto thread = detail::start_thread("remora-bench", [this, &worker] {
        worker.run(plan_, stop_);
        --running_;
      });
      if (!thread) return thread.error();
      threads_.push_back(std::move(*thread));
    }
    return {};
  }

  void stop() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

  /// Sleeps until `until`; ends early on a signal or when every worker has stopped.
  void watch(RunClock::time_point until, BenchLive& live) const {
    while (RunClock::now() < until && interrupted() == 0 && running_.load() > 0) {
      const auto step =
          std::min<RunClock::duration>(until - RunClock::now(), std::chrono::milliseconds{20});
      std::this_thread::sleep_for(std::max<RunClock::duration>(step, RunClock::duration::zero()));
      live.look(workers_, plan_, RunClock::now());
    }
  }

 private:
  std::vector<BenchWorker>& workers_;
  const BenchPlan& plan_;
  std::atomic<bool> stop_{false};
  std::atomic<std::size_t> running_;
  std::vector<std::thread> threads_;
};

}  // namespace

std::uint64_t BenchResult::bytes(BenchOp op) const noexcept {
  return by_op[static_cast<std::size_t>(op)].operations() *
         (is_atomic(op) ? kAtomicBytes : block_bytes);
}

std::uint64_t BenchResult::bytes() const noexcept {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < kBenchOpCount; ++i) sum += bytes(static_cast<BenchOp>(i));
  return sum;
}

Result<BenchResult> run_bench(const OpenedStore& store, BenchPlan plan, std::size_t threads,
                              double warmup_seconds, double seconds, BenchLive& live) {
  plan.live = live.enabled();
  std::vector<BenchWorker> workers;
  workers.reserve(threads);
  for (std::uint32_t i = 0; i < threads; ++i) {
    auto worker = BenchWorker::make(store, plan, i);
    if (!worker) return worker.error();
    workers.push_back(std::move(*worker));
  }
  plan.measure_from = RunClock::now() + whole(warmup_seconds);
  plan.measure_to = plan.measure_from + whole(seconds);
  Crew crew{workers, plan};
  if (const Status started = crew.start(); !started) return started.error();
  crew.watch(plan.measure_from, live);
  const double cpu_before = process_cpu_seconds();
  crew.watch(plan.measure_to, live);
  BenchResult result;
  result.block_bytes = plan.block_bytes;
  result.depth = plan.depth;
  result.cpu_seconds = process_cpu_seconds() - cpu_before;
  const auto end = std::min(RunClock::now(), plan.measure_to);
  result.seconds = std::max(0.0, RunSeconds(end - plan.measure_from).count());
  crew.stop();
  live.wipe();
  for (const BenchWorker& worker : workers) {
    for (std::size_t i = 0; i < kBenchOpCount; ++i) {
      result.by_op[i].merge(worker.tallies()[i]);
      result.total.merge(worker.tallies()[i]);
    }
    if (!result.failure) result.failure = worker.first_failure();
  }
  return result;
}

}  // namespace remora::apps
