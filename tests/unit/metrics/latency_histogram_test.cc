#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <random>
#include <vector>

#include <remora/metrics/latency_histogram.h>

namespace remora::metrics {
namespace {

std::vector<std::uint64_t> interesting_values() {
  std::vector<std::uint64_t> values;
  for (std::uint64_t value = 0; value < 5'000; ++value) values.push_back(value);
  for (unsigned bit = 12; bit < 64; ++bit)
    for (std::int64_t off = -2; off <= 2; ++off)
      values.push_back((std::uint64_t{1} << bit) + static_cast<std::uint64_t>(off));
  std::mt19937_64 random{7};
  for (int i = 0; i < 100'000; ++i) values.push_back(random() >> (random() % 64));
  std::erase_if(values, [](std::uint64_t value) { return value > Buckets::kMaxValue; });
  return values;
}

TEST(Buckets, EveryValueLiesInItsBucketWithinTheErrorBound) {
  for (const std::uint64_t value : interesting_values()) {
    const std::size_t rank = Buckets::rank(value);
    ASSERT_LT(rank, Buckets::kCount);
    ASSERT_EQ(Buckets::slot_of_rank(rank), Buckets::slot(value)) << value;
    const std::uint64_t upper = Buckets::upper_of_rank(rank);
    ASSERT_GE(upper, value);
    if (rank > 0) {
      ASSERT_LT(Buckets::upper_of_rank(rank - 1), value);
    }
    ASSERT_LE(static_cast<double>(upper - value),
              Buckets::kRelativeErrorMax * static_cast<double>(value))
        << value;
  }
}

TEST(Buckets, EdgesAscendAndEndAtTheLargestValue) {
  for (std::size_t rank = 1; rank < Buckets::kCount; ++rank)
    ASSERT_GT(Buckets::upper_of_rank(rank), Buckets::upper_of_rank(rank - 1)) << rank;
  EXPECT_EQ(Buckets::upper_of_rank(Buckets::kCount - 1), Buckets::kMaxValue);
}

TEST(Buckets, SmallValuesAndPowersOfTwoAreUpperEdges) {
  for (std::uint64_t value = 0; value <= 32; ++value)
    EXPECT_EQ(Buckets::upper_of_rank(Buckets::rank(value)), value);
  for (unsigned bit = 0; bit < 63; ++bit) {
    const std::uint64_t value = std::uint64_t{1} << bit;
    EXPECT_EQ(Buckets::upper_of_rank(Buckets::rank(value)), value);
  }
}

TEST(Buckets, NegativeDifferenceCountsAsZero) {
  const std::uint64_t difference = std::uint64_t{5} - std::uint64_t{9};
  EXPECT_EQ(Buckets::rank(difference), 0U);
  LatencyHistogram histogram;
  histogram.record(difference);
  EXPECT_EQ(histogram.max(), 0U);
  EXPECT_EQ(histogram.sum(), 0U);
}

TEST(LatencyHistogram, EmptyAnswersZero) {
  const LatencyHistogram histogram;
  EXPECT_EQ(histogram.count(), 0U);
  EXPECT_EQ(histogram.min(), 0U);
  EXPECT_EQ(histogram.max(), 0U);
  EXPECT_EQ(histogram.percentile(99), 0U);
  EXPECT_EQ(histogram.mean(), 0.0);
}

TEST(LatencyHistogram, PercentilesOfSortedDataWithinTheBound) {
  std::mt19937_64 random{42};
  std::lognormal_distribution<double> latency{9.0, 1.5};
  LatencyHistogram histogram;
  std::vector<std::uint64_t> values;
  for (int i = 0; i < 200'000; ++i) {
    values.push_back(static_cast<std::uint64_t>(latency(random)));
    histogram.record(values.back());
  }
  std::sort(values.begin(), values.end());
  for (const double percent : {0.0, 0.1, 1.0, 25.0, 50.0, 90.0, 99.0, 99.9, 99.99, 100.0}) {
    const double exact_rank =
        std::ceil(percent / 100.0 * static_cast<double>(values.size()) - 1e-6);
    const auto rank = static_cast<std::size_t>(std::max(1.0, exact_rank));
    const std::uint64_t truth = values[rank - 1];
    EXPECT_GE(histogram.percentile(percent), truth) << percent;
    EXPECT_LE(static_cast<double>(histogram.percentile(percent)),
              static_cast<double>(truth) * (1 + Buckets::kRelativeErrorMax))
        << percent;
  }
  EXPECT_EQ(histogram.min(), values.front());
  EXPECT_EQ(histogram.max(), values.back());
  EXPECT_EQ(histogram.percentile(100), values.back());
}

TEST(LatencyHistogram, NearestRankHasNoRoundingError) {
  LatencyHistogram histogram;
  histogram.record_n(10, 999);
  histogram.record(20);
  EXPECT_EQ(histogram.percentile(99.9), 10U);
  EXPECT_EQ(histogram.percentile(99.91), 20U);
  EXPECT_EQ(histogram.percentile(-5), 10U);
  EXPECT_EQ(histogram.percentile(500), 20U);
  EXPECT_EQ(histogram.percentile(std::numeric_limits<double>::quiet_NaN()), 10U);
}

TEST(LatencyHistogram, MergeEqualsRecordingInOne) {
  LatencyHistogram one;
  LatencyHistogram two;
  LatencyHistogram both;
  for (const std::uint64_t value : interesting_values()) {
    (value % 3 == 0 ? one : two).record(value);
    both.record(value);
  }
  one.merge(two);
  EXPECT_EQ(one.count(), both.count());
  EXPECT_EQ(one.sum(), both.sum());
  EXPECT_EQ(one.min(), both.min());
  EXPECT_EQ(one.max(), both.max());
  for (std::size_t rank = 0; rank < Buckets::kCount; ++rank)
    ASSERT_EQ(one.count_at_rank(rank), both.count_at_rank(rank));
  one.merge(LatencyHistogram{});
  EXPECT_EQ(one.min(), both.min());
}

TEST(LatencyHistogram, RecordNoTimesChangesNothing) {
  LatencyHistogram histogram;
  histogram.record_n(7, 0);
  EXPECT_EQ(histogram.count(), 0U);
  EXPECT_EQ(histogram.max(), 0U);
}

TEST(LatencyHistogram, CountUpToIncludesTheBound) {
  LatencyHistogram histogram;
  for (const unsigned value : {0U, 1U, 2U, 4095U, 4096U, 4097U}) histogram.record(value);
  EXPECT_EQ(histogram.count_up_to(0), 1U);
  EXPECT_EQ(histogram.count_up_to(1), 2U);
  EXPECT_EQ(histogram.count_up_to(4096), 5U);
  histogram.reset();
  EXPECT_EQ(histogram.count_up_to(Buckets::kMaxValue), 0U);
}

}  // namespace
}  // namespace remora::metrics
