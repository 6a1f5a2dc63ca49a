#pragma once

/// One thread of `remora bench`: a queue of its own, kept full, every operation timed.

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <remora/metrics/latency_histogram.h>
#include <remora/remora.h>

#include "cli/bench_mix.h"
#include "cli/bench_order.h"
#include "cli/bench_tally.h"
#include "cli/opened_store.h"
#include "cli/store_queue.h"

namespace remora::apps {

/// The parameters that all workers of a run share.
struct BenchPlan {
  using Clock = std::chrono::steady_clock;

  BenchMix mix;
  std::uint64_t offset_bytes = 0;  ///< begin of the measured part
  std::uint64_t block_bytes = 4096;
  std::uint64_t block_count = 0;
  std::size_t depth = 32;
  std::size_t batch = 0;  ///< operations in each submit; 0: as many as fit
  bool sequential = false;
  std::uint64_t seed = 0;  ///< decides the order of blocks and operations of each worker
  bool live = false;       ///< a BenchLive reads LiveCells::latency_ns
  Clock::time_point measure_from;
  Clock::time_point measure_to;
};

/// Progress of one worker, including warm-up. Only the worker writes it, and BenchLive reads it:
/// relaxed, so each number is right, but two numbers may be of different moments.
struct alignas(64) LiveCells {
  std::atomic<std::uint64_t> completed{0};
  std::atomic<std::uint64_t> bytes{0};
  std::atomic<std::uint64_t> failed{0};
  /// By Buckets::slot(); one operation of each wait, if BenchPlan::live is set.
  std::array<std::atomic<std::uint64_t>, metrics::Buckets::kCount> latency_ns{};
};

class BenchWorker {
 public:
  /// `store` must outlive the worker. Errors: those of Engine::allocate_slots and
  /// OpenedStore::queue.
  static Result<BenchWorker> make(const OpenedStore& store, const BenchPlan& plan,
                                  std::uint32_t number);

  /// Works until the plan's end, `stop`, or a failure that ends the session. Runs on its own
  /// thread.
  void run(const BenchPlan& plan, const std::atomic<bool>& stop);

  /// The loop of run(), for StoreQueue::measure(). bench_loop.h has it: compiled for the queue of a
  /// region and for that of a volume, so that no operation asks which it is.
  template <typename AnyQueue>
  void work(AnyQueue& queue, const BenchPlan& plan, const std::atomic<bool>& stop);

  /// The results, once run() has returned.
  [[nodiscard]] const BenchTallies& tallies() const noexcept { return *tallies_; }
  [[nodiscard]] const std::optional<Error>& first_failure() const noexcept { return failure_; }
  /// May be read while run() works.
  [[nodiscard]] const LiveCells& live() const noexcept { return *live_; }

 private:
  using Clock = BenchPlan::Clock;
  /// The number of failures after which a worker stops.
  static constexpr std::uint64_t kFailuresMax = 1000;
  struct InFlight {
    Clock::time_point submitted_at;
    BenchOp op = BenchOp::kRead;
  };
  BenchWorker(const OpenedStore& store, SlotPool slots, std::unique_ptr<StoreQueue> queue,
              const BenchPlan& plan, std::uint32_t number);

  template <typename AnyQueue>
  void submit(AnyQueue& queue, const BenchPlan& plan, std::size_t count);
  template <typename AnyQueue>
  void take(AnyQueue& queue, const BenchPlan& plan, std::uint64_t place);
  /// False: continuing is useless.
  template <typename AnyQueue>
  bool collect(AnyQueue& queue, const BenchPlan& plan);
  void count_live(const BenchPlan& plan, std::uint64_t good, std::uint64_t bytes,
                  std::uint64_t sample_ns) noexcept;

  const OpenedStore* store_;
  SlotPool slots_;
  std::vector<Slot> buffers_;          ///< by place
  std::unique_ptr<StoreQueue> queue_;  // its operations use the buffers: ends before them
  std::vector<InFlight> in_flight_;    ///< by place, which is the operation's tag
  std::vector<std::uint64_t> free_places_;
  std::unique_ptr<BenchTallies> tallies_;
  std::unique_ptr<LiveCells> live_;
  std::uint64_t failed_ = 0;
  std::optional<Error> failure_;
  Clock::time_point now_;  ///< when the last wait returned
  BenchOrder order_;
};

}  // namespace remora::apps
