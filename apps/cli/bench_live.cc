#include "cli/bench_live.h"

#include <algorithm>
#include <cstdio>

#include "cli/bench_report.h"
#include "cli/command.h"
#include "cli/human.h"
#include "cli/progress.h"

namespace remora::apps {
namespace {

using metrics::Buckets;

double in_seconds(BenchPlan::Clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

BenchLive::BenchLive(std::string label, double later_seconds)
    : label_{std::move(label)}, later_seconds_{later_seconds}, enabled_{stderr_is_terminal()} {}

void BenchLive::wipe() {
  if (drawn_) draw_line("");
  drawn_ = false;
}

BenchLive::Sums BenchLive::sums_of(const std::vector<BenchWorker>& workers) noexcept {
  Sums sums;
  for (const BenchWorker& worker : workers) {
    const LiveCells& live = worker.live();
    sums.completed += live.completed.load(std::memory_order_relaxed);
    sums.bytes += live.bytes.load(std::memory_order_relaxed);
    sums.failed += live.failed.load(std::memory_order_relaxed);
    for (std::size_t i = 0; i < Buckets::kCount; ++i)
      sums.latency_ns[i] += live.latency_ns[i].load(std::memory_order_relaxed);
  }
  return sums;
}

void BenchLive::look(const std::vector<BenchWorker>& workers, const BenchPlan& plan,
                     Clock::time_point now) {
  if (!enabled_ || now - drawn_at_ < std::chrono::seconds{1}) return;
  const Sums sums = sums_of(workers);
  metrics::LatencyHistogram since;
  for (std::size_t rank = 0; rank < Buckets::kCount; ++rank) {
    const std::size_t slot = Buckets::slot_of_rank(rank);
    since.record_n(Buckets::upper_of_rank(rank), sums.latency_ns[slot] - before_.latency_ns[slot]);
  }
  const double seconds = in_seconds(now - drawn_at_);
  const auto rate = [seconds](std::uint64_t after, std::uint64_t before) {
    return static_cast<double>(after - before) / seconds;
  };
  const double left = std::max(0.0, in_seconds(plan.measure_to - now)) + later_seconds_;
  std::array<char, 200> line{};
  std::snprintf(line.data(), line.size(), "bench  %s  %s  %s  %s  p99 %s  %ju errors  %.0f s left",
                label_.c_str(), now < plan.measure_from ? "warm-up" : "measuring",
                human_operations(rate(sums.completed, before_.completed)).c_str(),
                human_rate(rate(sums.bytes, before_.bytes)).c_str(),
                human_nanoseconds(static_cast<double>(since.percentile(99))).c_str(),
                std::uintmax_t{sums.failed}, left);
  draw_line(line.data());
  drawn_ = true;
  before_ = sums;
  drawn_at_ = now;
}

}  // namespace remora::apps
