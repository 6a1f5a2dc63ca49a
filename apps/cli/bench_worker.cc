#include "cli/bench_worker.h"

#include <utility>

namespace remora::apps {
namespace {

/// Only one thread writes these cells, so no locked instruction is needed.
void add_to(std::atomic<std::uint64_t>& cell, std::uint64_t amount) noexcept {
  cell.store(cell.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
}

}  // namespace

Result<BenchWorker> BenchWorker::make(const OpenedStore& store, const BenchPlan& plan,
                                      std::uint32_t number) {
  auto slots = store.engine().allocate_slots(plan.depth, plan.block_bytes);
  if (!slots) return slots.error();
  auto queue = store.queue(plan.depth);
  if (!queue) return queue.error();
  return BenchWorker{store, std::move(*slots), std::move(*queue), plan, number};
}

BenchWorker::BenchWorker(const OpenedStore& store, SlotPool slots,
                         std::unique_ptr<StoreQueue> queue, const BenchPlan& plan,
                         std::uint32_t number)
    : store_{&store},
      slots_{std::move(slots)},
      buffers_(plan.depth),
      queue_{std::move(queue)},
      in_flight_(plan.depth),
      tallies_{std::make_unique<BenchTallies>()},
      live_{std::make_unique<LiveCells>()},
      order_{plan.seed, number, plan.block_count, plan.sequential} {
  for (Slot& buffer : buffers_) buffer = slots_.take();
  for (std::uint64_t place = plan.depth; place > 0; --place) free_places_.push_back(place - 1);
}

void BenchWorker::count_live(const BenchPlan& plan, std::uint64_t good, std::uint64_t bytes,
                             std::uint64_t sample_ns) noexcept {
  if (!plan.live) return;
  add_to(live_->completed, good);
  add_to(live_->bytes, bytes);
  live_->failed.store(failed_, std::memory_order_relaxed);
  if (good > 0) add_to(live_->latency_ns[metrics::Buckets::slot(sample_ns)], 1);
}

void BenchWorker::run(const BenchPlan& plan, const std::atomic<bool>& stop) {
  queue_->measure(*this, plan, stop);
}

}  // namespace remora::apps
