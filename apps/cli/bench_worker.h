#pragma once

/// One thread of `remora bench`: a queue of its own, kept full, every operation timed.

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include <remora/metrics/latency_histogram.h>
#include <remora/remora.h>

namespace remora::apps {

enum class BenchOp : std::uint8_t { kRead, kWrite, kCompareSwap, kFetchAdd };

/// What every worker of a run is told.
struct BenchPlan {
  using Clock = std::chrono::steady_clock;

  BenchOp op = BenchOp::kRead;
  std::uint64_t offset_bytes = 0;  ///< where the measured part of the region begins
  std::uint64_t block_bytes = 4096;
  std::uint64_t block_count = 0;
  std::size_t depth = 32;
  std::size_t batch = 0;  ///< operations a submit; 0: as many as there is room for
  bool sequential = false;
  Clock::time_point measure_from;
  Clock::time_point measure_to;
};

/// Operations that failed, by code.
using FailureCounts = std::array<std::uint64_t, static_cast<std::size_t>(Code::kInternal) + 1>;

class BenchWorker {
 public:
  /// Errors: those of Engine::allocate_slots and Region::queue.
  static Result<BenchWorker> make(const Engine& engine, const Region& region, const BenchPlan& plan,
                                  std::uint32_t number);

  /// Works until the plan's end, `stop`, or a failure that ends the session. Its own thread.
  void run(const BenchPlan& plan, const std::atomic<bool>& stop);

  // Results. Only operations that completed between measure_from and measure_to count.
  [[nodiscard]] const metrics::LatencyHistogram& latency_ns() const noexcept { return *latency_; }
  [[nodiscard]] const FailureCounts& failures() const noexcept { return failures_; }
  [[nodiscard]] const std::optional<Error>& first_failure() const noexcept { return failure_; }
  /// Operations completed so far, warm-up included; may be read while run() works.
  [[nodiscard]] std::uint64_t completed() const noexcept {
    return completed_->load(std::memory_order_relaxed);
  }

 private:
  using Clock = BenchPlan::Clock;
  BenchWorker(Region region, SlotPool slots, Queue queue, const BenchPlan& plan,
              std::uint32_t number);

  void submit(const BenchPlan& plan, std::size_t count);
  void take(const BenchPlan& plan, std::uint64_t place);
  /// False once there is no point in going on.
  bool collect(const BenchPlan& plan);
  std::uint64_t next_block(const BenchPlan& plan) noexcept;

  Region region_;
  SlotPool slots_;
  Queue queue_;
  std::vector<Clock::time_point> submitted_at_;  // by place, which is the operation's tag
  std::vector<std::uint64_t> free_places_;
  std::unique_ptr<metrics::LatencyHistogram> latency_;
  std::unique_ptr<std::atomic<std::uint64_t>> completed_;
  FailureCounts failures_{};
  std::optional<Error> failure_;
  std::uint64_t random_state_;
  std::uint64_t sequence_;
};

}  // namespace remora::apps
