#pragma once

/// The loop of a BenchWorker over a queue whose type is known: for the sources that have such a
/// queue.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include <remora/remora.h>

#include "cli/bench_worker.h"
#include "cli/opened_store.h"

namespace remora::apps {

template <typename AnyQueue>
void BenchWorker::take(AnyQueue& queue, const BenchPlan& plan, std::uint64_t place) {
  const ByteOffset at{plan.offset_bytes + order_.next_block() * plan.block_bytes};
  const auto& shares = plan.mix.shares();
  const BenchOp op = shares.size() == 1 ? shares.front().op : plan.mix.pick(order_.next_word());
  in_flight_[place].op = op;
  switch (op) {
    case BenchOp::kRead: queue.read(at, Target{buffers_[place]}, place); break;
    case BenchOp::kWrite: {
      const std::span<std::byte> bytes = buffers_[place].bytes();
      // Each write has its own mark, so that no two writes are equal.
      const std::uint64_t mark = order_.mark();
      std::memcpy(bytes.data(), &mark, std::min(sizeof mark, bytes.size()));
      queue.write(at, Source{buffers_[place]}, place);
      break;
    }
    case BenchOp::kCompareSwap: queue.compare_swap(at, 0, 0, place); break;
    case BenchOp::kFetchAdd: queue.fetch_add(at, 1, place); break;
  }
}

template <typename AnyQueue>
void BenchWorker::submit(AnyQueue& queue, const BenchPlan& plan, std::size_t count) {
  const auto first = static_cast<std::ptrdiff_t>(free_places_.size() - count);
  for (auto place = free_places_.begin() + first; place != free_places_.end(); ++place)
    take(queue, plan, *place);
  const auto now = Clock::now();
  for (auto place = free_places_.begin() + first; place != free_places_.end(); ++place)
    in_flight_[*place].submitted_at = now;
  free_places_.resize(free_places_.size() - count);
  if (const Status submitted = queue.submit(); !submitted && !failure_)
    failure_ = submitted.error();
}

template <typename AnyQueue>
bool BenchWorker::collect(AnyQueue& queue, const BenchPlan& plan) {
  const auto found = queue.wait(1);
  if (found.empty()) return false;
  now_ = Clock::now();
  const bool counted = now_ >= plan.measure_from && now_ <= plan.measure_to;
  std::uint64_t good = 0;
  std::uint64_t bytes = 0;
  std::uint64_t latency_ns = 0;
  for (const auto& completion : found) {
    const std::uint64_t place = completion.tag();
    const InFlight& operation = in_flight_[place];
    BenchTally& tally = (*tallies_)[static_cast<std::size_t>(operation.op)];
    free_places_.push_back(place);
    if (completion.ok()) {
      ++good;
      bytes += is_atomic(operation.op) ? kAtomicBytes : plan.block_bytes;
      latency_ns = static_cast<std::uint64_t>((now_ - operation.submitted_at).count());
      if (counted) tally.latency_ns.record(latency_ns);
    } else {
      const Error error = completion.error();
      ++tally.failures[static_cast<std::size_t>(error.code())];
      ++failed_;
      if (!failure_) failure_ = error;
    }
  }
  count_live(plan, good, bytes, latency_ns);
  return !failure_ || (store_->connected() && failed_ < kFailuresMax);
}

template <typename AnyQueue>
void BenchWorker::work(AnyQueue& queue, const BenchPlan& plan, const std::atomic<bool>& stop) {
  const std::size_t batch = plan.batch == 0 ? 1 : plan.batch;
  bool going = true;
  now_ = Clock::now();
  while (going && !stop.load(std::memory_order_relaxed) && now_ < plan.measure_to) {
    while (free_places_.size() >= batch)
      submit(queue, plan, plan.batch == 0 ? free_places_.size() : batch);
    going = collect(queue, plan);
  }
  while (queue.size() > 0 && !queue.wait(1).empty()) {
  }
}

}  // namespace remora::apps
