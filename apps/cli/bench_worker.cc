#include "cli/bench_worker.h"

#include <algorithm>
#include <cstring>

namespace remora::apps {
namespace {

/// Failures in a row without a success, after which a worker gives up.
constexpr std::uint64_t kFailuresMax = 1000;

}  // namespace

Result<BenchWorker> BenchWorker::make(const Engine& engine, const Region& region,
                                      const BenchPlan& plan, std::uint32_t number) {
  auto slots = engine.allocate_slots(plan.depth, plan.block_bytes);
  if (!slots) return slots.error();
  auto queue = region.queue({.depth = plan.depth});
  if (!queue) return queue.error();
  return BenchWorker{region, std::move(*slots), std::move(*queue), plan, number};
}

BenchWorker::BenchWorker(Region region, SlotPool slots, Queue queue, const BenchPlan& plan,
                         std::uint32_t number)
    : region_{std::move(region)},
      slots_{std::move(slots)},
      queue_{std::move(queue)},
      submitted_at_(plan.depth),
      latency_{std::make_unique<metrics::LatencyHistogram>()},
      completed_{std::make_unique<std::atomic<std::uint64_t>>(0)},
      random_state_{0x9e3779b97f4a7c15ULL * (number + 1)},
      sequence_{plan.block_count / 8 * number} {
  for (std::uint64_t place = plan.depth; place > 0; --place) free_places_.push_back(place - 1);
}

std::uint64_t BenchWorker::next_block(const BenchPlan& plan) noexcept {
  if (plan.sequential) return sequence_++ % plan.block_count;
  // SplitMix64, then a multiplication instead of a division to get below block_count.
  std::uint64_t mixed = random_state_ += 0x9e3779b97f4a7c15ULL;
  mixed = (mixed ^ (mixed >> 30U)) * 0xbf58476d1ce4e5b9ULL;
  mixed = (mixed ^ (mixed >> 27U)) * 0x94d049bb133111ebULL;
  mixed ^= mixed >> 31U;
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::uint64_t>((static_cast<Wide>(mixed) * plan.block_count) >> 64U);
}

void BenchWorker::take(const BenchPlan& plan, std::uint64_t place) {
  const ByteOffset at{plan.offset_bytes + next_block(plan) * plan.block_bytes};
  switch (plan.op) {
    case BenchOp::kRead: queue_.read(at, slots_.take(), place); break;
    case BenchOp::kWrite: {
      Slot slot = slots_.take();
      // A mark of its own for each write, so that no two of them are alike.
      std::memcpy(slot.bytes().data(), &random_state_,
                  std::min(sizeof random_state_, slot.bytes().size()));
      queue_.write(at, std::move(slot), place);
      break;
    }
    case BenchOp::kCompareSwap: queue_.compare_swap(at, 0, 0, place); break;
    case BenchOp::kFetchAdd: queue_.fetch_add(at, 1, place); break;
  }
}

void BenchWorker::submit(const BenchPlan& plan, std::size_t count) {
  const auto first = static_cast<std::ptrdiff_t>(free_places_.size() - count);
  for (auto place = free_places_.begin() + first; place != free_places_.end(); ++place)
    take(plan, *place);
  const auto now = Clock::now();
  for (auto place = free_places_.begin() + first; place != free_places_.end(); ++place)
    submitted_at_[*place] = now;
  free_places_.resize(free_places_.size() - count);
  if (const Status submitted = queue_.submit(); !submitted && !failure_)
    failure_ = submitted.error();
}

bool BenchWorker::collect(const BenchPlan& plan) {
  const Completions found = queue_.wait(1);
  if (found.empty()) return false;
  const auto now = Clock::now();
  const bool counted = now >= plan.measure_from && now <= plan.measure_to;
  std::uint64_t good = 0;
  for (const Completion& completion : found) {
    const std::uint64_t place = completion.tag();
    free_places_.push_back(place);
    if (completion.ok()) {
      ++good;
      if (counted)
        latency_->record(static_cast<std::uint64_t>((now - submitted_at_[place]).count()));
    } else {
      const Error error = completion.error();
      ++failures_[static_cast<std::size_t>(error.code())];
      if (!failure_) failure_ = error;
    }
  }
  completed_->store(completed_->load(std::memory_order_relaxed) + good, std::memory_order_relaxed);
  if (!failure_) return true;
  std::uint64_t failed = 0;
  for (const std::uint64_t count : failures_) failed += count;
  return region_.connected() && failed < kFailuresMax;
}

void BenchWorker::run(const BenchPlan& plan, const std::atomic<bool>& stop) {
  const std::size_t batch = plan.batch == 0 ? 1 : plan.batch;
  bool going = true;
  while (going && !stop.load(std::memory_order_relaxed) && Clock::now() < plan.measure_to) {
    while (free_places_.size() >= batch)
      submit(plan, plan.batch == 0 ? free_places_.size() : batch);
    going = collect(plan);
  }
  while (queue_.size() > 0 && !queue_.wait(1).empty()) {
  }
}

}  // namespace remora::apps
