#pragma once

/// The line that `remora bench` shows while it works.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "cli/bench_worker.h"

namespace remora::apps {

/// One line on a terminal, redrawn each second: rate, p99 of that second, errors, time left. Draws
/// nothing if stderr is no terminal. Reads the workers' LiveCells without delaying a worker.
class BenchLive {
 public:
  using Clock = BenchPlan::Clock;

  /// `label`: the measured operation. `later_seconds`: the time that all later plans will take.
  BenchLive(std::string label, double later_seconds);
  ~BenchLive() { wipe(); }
  BenchLive(const BenchLive&) = delete;
  BenchLive& operator=(const BenchLive&) = delete;

  [[nodiscard]] bool enabled() const noexcept { return enabled_; }
  /// Called often; draws when a second has passed.
  void look(const std::vector<BenchWorker>& workers, const BenchPlan& plan, Clock::time_point now);
  void wipe();

 private:
  struct Sums {
    std::uint64_t completed = 0;
    std::uint64_t bytes = 0;
    std::uint64_t failed = 0;
    std::array<std::uint64_t, metrics::Buckets::kCount> latency_ns{};
  };
  static Sums sums_of(const std::vector<BenchWorker>& workers) noexcept;

  std::string label_;
  double later_seconds_;
  bool enabled_;
  bool drawn_ = false;
  Clock::time_point drawn_at_ = Clock::now();
  Sums before_;
};

}  // namespace remora::apps
