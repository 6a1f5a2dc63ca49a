// What it costs to bring the neighbours of a shuffled batch together: BatchOrder, against the same
// list sorted by std::sort, and by oneTBB with two threads, in turn.
//
//   bench_batch_order [PAIRS] | ratio_table

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <tbb/parallel_sort.h>
#include <tbb/task_arena.h>
#include <vector>

#include "client/datapath/batch_order.h"

namespace remora::bench {
namespace {

using detail::BatchOrder;
using detail::OperationList;
using detail::OperationRecord;

constexpr std::uint32_t kBlockBytes = 64;

class JoiningLane final : public detail::LaneDriver {
 public:
  void submit(OperationList) noexcept override {}
  void wait(detail::CompletionSink&, std::size_t, detail::DeadlineSource) noexcept override {}
  void run(OperationRecord&) noexcept override {}
  void progress_and_arm(detail::CompletionSink&, detail::DeadlineSource) noexcept override {}
  bool cancel(OperationRecord&) noexcept override { return false; }
  void fail(Reason) noexcept override {}
  [[nodiscard]] NeighbourGain neighbour_gain() const noexcept override {
    return {.max_operations = kMaxQueueDepth};
  }
  [[nodiscard]] std::uint32_t request_bytes_max() const noexcept override { return 1U << 20U; }
};

/// Reads of neighbouring blocks, in a new order each time.
class Batch {
 public:
  explicit Batch(std::size_t count) : memory_(count * kBlockBytes), operations_(count) {
    for (std::size_t i = 0; i < count; ++i) {
      OperationRecord& operation = operations_[i];
      operation.request.remote_address = (std::uint64_t{1} << 40U) + i * kBlockBytes;
      operation.request.local = &memory_[i * kBlockBytes];
      operation.request.length_bytes = kBlockBytes;
      operation.whole = true;
      order_.push_back(&operation);
    }
  }
  OperationList shuffled() {
    std::shuffle(order_.begin(), order_.end(), random_);
    OperationList list;
    for (OperationRecord* operation : order_) list.append(*operation);
    return list;
  }

 private:
  std::mt19937_64 random_{1};
  std::vector<std::byte> memory_;
  std::vector<OperationRecord> operations_;
  std::vector<OperationRecord*> order_;
};

/// As BatchOrder, but by comparing, and whatever it is given.
class ByComparing {
 public:
  template <typename Sort>
  void arrange(OperationList& list, Sort sort) {
    places_.clear();
    for (OperationRecord* at = list.first; at != nullptr; at = at->next)
      places_.push_back({at->request.remote_address, at});
    sort(places_.begin(), places_.end(),
         [](const Place& one, const Place& other) { return one.address < other.address; });
    list = {};
    for (const Place& place : places_) list.append(*place.operation);
  }

 private:
  struct Place {
    std::uint64_t address;
    OperationRecord* operation;
  };
  std::vector<Place> places_;
};

/// Operations a second, by the median batch.
template <typename Arrange>
double rate(Batch& batch, std::size_t count, Arrange arrange) {
  const std::size_t times = std::clamp<std::size_t>(200'000 / count, 5, 400);
  std::vector<double> seconds;
  for (std::size_t i = 0; i < times; ++i) {
    OperationList list = batch.shuffled();
    const auto begin = std::chrono::steady_clock::now();
    arrange(list);
    seconds.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    if (list.count != count) std::abort();
  }
  const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>(times / 2);
  std::nth_element(seconds.begin(), middle, seconds.end());
  return static_cast<double>(count) / *middle;
}

void compare(std::size_t count, std::int64_t pairs) {
  const JoiningLane lane;
  BatchOrder order{lane, count};
  ByComparing comparing;
  tbb::task_arena arena{2};
  Batch batch{count};
  const auto ours = [&](OperationList& list) { order.arrange(list); };
  const auto standard = [&](OperationList& list) {
    comparing.arrange(list, [](auto... all) { std::sort(all...); });
  };
  const auto tasks = [&](OperationList& list) {
    comparing.arrange(list,
                      [&](auto... all) { arena.execute([&] { tbb::parallel_sort(all...); }); });
  };
  rate(batch, count, tasks);
  for (std::int64_t i = 0; i < pairs; ++i) {
    const double of_ours = rate(batch, count, ours);
    const double of_standard = rate(batch, count, standard);
    const double of_tasks = rate(batch, count, tasks);
    const char* const row = "%zu operations\t%s\toperations/s\t-\t%.0f\t%.0f\n";
    std::printf(row, count, "std::sort", of_ours, of_standard);
    std::printf(row, count, "tbb::parallel_sort", of_ours, of_tasks);
  }
}

}  // namespace
}  // namespace remora::bench

int main(int argc, char** argv) {
  const auto pairs = argc > 1 ? std::strtol(argv[1], nullptr, 10) : 15;
  if (pairs <= 0 || argc > 2) {
    std::fprintf(stderr, "usage: bench_batch_order [PAIRS]\n");
    return 1;
  }
  for (const std::size_t count : {32U, 64U, 256U, 1024U, 4096U, 16384U, 65536U})
    remora::bench::compare(count, pairs);
}
