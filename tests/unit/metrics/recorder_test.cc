#include <atomic>
#include <gtest/gtest.h>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include <remora/metrics/registry.h>

namespace remora::metrics {
namespace {

std::shared_ptr<Registry> make_registry() { return Registry::create().value(); }

TEST(Recorder, EightThreadsGiveExactTotals) {
  constexpr int kThreads = 8;
  constexpr std::uint64_t kRounds = 200'000;
  const auto registry = make_registry();
  const Counter operations = registry->counter("test_operations_total", "Operations.").value();
  const Counter bytes = registry->counter("test_bytes_total", "Bytes.").value();
  const Histogram latency =
      registry->histogram("test_latency_seconds", "Latency.", {}, HistogramShape::latency())
          .value();
  std::atomic<bool> done{false};
  std::thread scraper{[&] {
    std::uint64_t last = 0;
    while (!done.load()) {
      EXPECT_NE(registry->text().find("test_operations_total"), std::string::npos);
      const std::uint64_t now = registry->value(operations);
      EXPECT_GE(now, last);
      last = now;
    }
  }};
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([&] {
      for (std::uint64_t round = 0; round < kRounds; ++round) {
        const Recorder recorder = registry->recorder();
        recorder.add(operations);
        recorder.add(bytes, 4096);
        recorder.observe(latency, round);
        recorder.observe_n(latency, 1, 2);
      }
    });
  for (std::thread& thread : threads) thread.join();
  done = true;
  scraper.join();
  EXPECT_EQ(registry->value(operations), kThreads * kRounds);
  EXPECT_EQ(registry->value(bytes), kThreads * kRounds * 4096);
  const LatencyHistogram histogram = registry->value(latency);
  EXPECT_EQ(histogram.count(), kThreads * kRounds * 3);
  EXPECT_EQ(histogram.sum(), kThreads * (kRounds * (kRounds - 1) / 2 + kRounds * 2));
}

TEST(Recorder, FinishedThreadsAreCountedAndTheirBlocksReused) {
  constexpr int kGenerations = 50;
  constexpr int kThreads = 4;
  const auto registry = make_registry();
  const Counter counter = registry->counter("test_total", "Count.").value();
  for (int generation = 0; generation < kGenerations; ++generation) {
    std::vector<std::thread> threads;
    threads.reserve(kThreads);
    for (int i = 0; i < kThreads; ++i)
      threads.emplace_back([&] {
        for (int n = 0; n < 100; ++n) registry->recorder().add(counter);
      });
    for (std::thread& thread : threads) thread.join();
    ASSERT_EQ(registry->value(counter), static_cast<unsigned>(generation + 1) * kThreads * 100U);
  }
  EXPECT_LE(registry->block_count(), static_cast<std::size_t>(kThreads));
}

TEST(Recorder, ThreadOutlivesRegistry) {
  auto registry = make_registry();
  std::atomic<int> step{0};
  std::uint64_t second = 0;
  std::thread thread{[&] {
    registry->recorder().add(registry->counter("test_total", "Count.").value());
    step = 1;
    step.notify_all();
    step.wait(1);
    // A new registry, perhaps where the old one was: the old cells must not be found.
    const auto other = make_registry();
    const Counter counter = other->counter("test_total", "Count.").value();
    other->recorder().add(counter, 3);
    second = other->value(counter);
  }};
  step.wait(0);
  EXPECT_EQ(registry->sum("test_total").value(), 1.0);
  registry.reset();
  step = 2;
  step.notify_all();
  thread.join();
  EXPECT_EQ(second, 3U);
}

TEST(Recorder, ManyRegistriesOneThread) {
  for (int i = 0; i < 1'000; ++i) {
    const auto registry = make_registry();
    const Counter counter = registry->counter("test_total", "Count.").value();
    registry->recorder().add(counter);
    ASSERT_EQ(registry->value(counter), 1U);
  }
}

TEST(Recorder, TwoRegistriesByTurns) {
  const auto one = make_registry();
  const auto two = make_registry();
  const Counter a = one->counter("test_total", "Count.").value();
  const Counter b = two->counter("test_total", "Count.").value();
  for (int i = 0; i < 1'000; ++i) {
    one->recorder().add(a);
    two->recorder().add(b, 2);
  }
  EXPECT_EQ(one->value(a), 1'000U);
  EXPECT_EQ(two->value(b), 2'000U);
  EXPECT_EQ(one->block_count(), 1U);
}

// Records when the thread's thread-local objects are destroyed, before or after the metrics' own.
struct RecordsAtExit {
  const Registry* registry = nullptr;
  Counter counter;
  ~RecordsAtExit() {
    if (registry != nullptr) registry->recorder().add(counter);
  }
};
thread_local RecordsAtExit t_records_at_exit;

TEST(Recorder, RecordingWhileTheThreadEndsIsCounted) {
  const auto registry = make_registry();
  const Counter counter = registry->counter("test_total", "Count.").value();
  std::thread early{[&] {
    t_records_at_exit.registry = registry.get();  // made first, so destroyed last
    t_records_at_exit.counter = counter;
    registry->recorder().add(counter);
  }};
  early.join();
  std::thread never_before{[&] {
    t_records_at_exit.registry = registry.get();
    t_records_at_exit.counter = counter;
  }};
  never_before.join();
  EXPECT_EQ(registry->value(counter), 3U);
}

TEST(Recorder, DefaultHandlesGoNowhere) {
  const auto registry = make_registry();
  const Counter counter = registry->counter("test_total", "Count.").value();
  const Histogram histogram =
      registry->histogram("test_things", "Things.", {}, HistogramShape::counts()).value();
  const Recorder recorder = registry->recorder();
  recorder.add(Counter{}, 5);
  for (std::uint64_t value = 1; value != 0; value <<= 1) recorder.observe(Histogram{}, value - 1);
  Gauge{}.set(1);
  Gauge{}.add(1);
  Gauge{}.raise(1);
  EXPECT_EQ(registry->value(counter), 0U);
  EXPECT_EQ(registry->value(histogram).count(), 0U);
  EXPECT_EQ(registry->value(Counter{}), 0U);
  EXPECT_EQ(registry->value(Gauge{}), 0);
  EXPECT_EQ(registry->value(Histogram{}).count(), 0U);
}

TEST(Recorder, HistogramsOfOneRegistryDoNotOverlap) {
  const auto registry = Registry::create({.series_max = 400}).value();
  std::vector<Histogram> histograms;
  histograms.reserve(100);
  HistogramShape shape{Unit::kCount, {1}};  // four series: the most histograms that fit
  for (int i = 0; i < 100; ++i)
    histograms.push_back(
        registry->histogram("test_things", "Things.", {{"i", std::to_string(i)}}, shape).value());
  const Recorder recorder = registry->recorder();
  for (const Histogram histogram : histograms) {
    recorder.observe(histogram, 0);
    recorder.observe(histogram, Buckets::kMaxValue);
  }
  for (const Histogram histogram : histograms) {
    const LatencyHistogram read = registry->value(histogram);
    ASSERT_EQ(read.count(), 2U);
    ASSERT_EQ(read.max(), Buckets::kMaxValue);
    ASSERT_EQ(read.min(), 0U);
    ASSERT_EQ(read.sum(), Buckets::kMaxValue);
  }
}

TEST(Recorder, RegistryHistogramAgreesWithStandAlone) {
  const auto registry = make_registry();
  const Histogram handle =
      registry->histogram("test_latency_seconds", "Latency.", {}, HistogramShape::latency())
          .value();
  LatencyHistogram direct;
  std::mt19937_64 random{3};
  for (int i = 0; i < 10'000; ++i) {
    const std::uint64_t value = random() >> (20 + random() % 40);
    registry->recorder().observe(handle, value);
    direct.record(value);
  }
  const LatencyHistogram read = registry->value(handle);
  EXPECT_EQ(read.count(), direct.count());
  EXPECT_EQ(read.sum(), direct.sum());
  EXPECT_LE(read.min(), direct.min());
  EXPECT_GE(read.max(), direct.max());
  EXPECT_LE(static_cast<double>(read.max()),
            static_cast<double>(direct.max()) * (1 + Buckets::kRelativeErrorMax));
  for (const double percent : {50.0, 99.0, 99.9})
    EXPECT_EQ(read.percentile(percent), direct.percentile(percent));
}

TEST(OwnedCells, AreSummedWithThoseOfThreadsAndKeptWhenTheyGo) {
  const auto registry = make_registry();
  const Counter counter = registry->counter("test_total", "Count.").value();
  registry->recorder().add(counter, 1);
  {
    OwnedCells one = registry->own_cells();
    OwnedCells other = registry->own_cells();
    one.recorder().add(counter, 10);
    std::thread{[&] { one.recorder().add(counter, 10); }}.join();  // one at a time, any thread
    other.recorder().add(counter, 100);
    EXPECT_EQ(registry->value(counter), 121U);
    EXPECT_EQ(registry->block_count(), 3U);
  }
  EXPECT_EQ(registry->value(counter), 121U);
  const OwnedCells again = registry->own_cells();
  again.recorder().add(counter);
  EXPECT_EQ(registry->value(counter), 122U);
  EXPECT_EQ(registry->block_count(), 3U) << "used again";
}

TEST(OwnedCells, MovedOnesRecordWhereTheyDidAndTheEmptyOnesNowhere) {
  auto registry = make_registry();
  const Counter counter = registry->counter("test_total", "Count.").value();
  OwnedCells first = registry->own_cells();
  OwnedCells second = std::move(first);
  second.recorder().add(counter);
  // NOLINTNEXTLINE(bugprone-use-after-move): it records nowhere, and that is what is asked
  first.recorder().add(counter);
  OwnedCells third;
  third.recorder().add(counter);
  third = std::move(second);
  third.recorder().add(counter);
  EXPECT_EQ(registry->value(counter), 2U);
  registry.reset();  // third outlives it
}

TEST(Gauge, LoweredOneKeepsItsHighWater) {
  const auto registry = make_registry();
  const Gauge gauge = registry->gauge("test_depth", "Depth.", {}, HighWater::kExport).value();
  gauge.set(7);
  gauge.lower(0);
  EXPECT_EQ(registry->value(gauge), 0);
  EXPECT_EQ(registry->high_water(gauge), 7);
}

TEST(Gauge, HighWaterHoldsUnderContention) {
  const auto registry = make_registry();
  const Gauge gauge = registry->gauge("test_depth", "Depth.", {}, HighWater::kExport).value();
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int n = 0; n < 10'000; ++n) {
        gauge.add(1);
        gauge.add(-1);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(registry->value(gauge), 0);
  EXPECT_GE(registry->high_water(gauge), 1);
  EXPECT_LE(registry->high_water(gauge), 4);
  gauge.raise(1'000);
  gauge.raise(7);
  EXPECT_EQ(registry->value(gauge), 1'000);
  EXPECT_EQ(registry->high_water(gauge), 1'000);
  gauge.set(5);
  EXPECT_EQ(registry->value(gauge), 5);
}

}  // namespace
}  // namespace remora::metrics
