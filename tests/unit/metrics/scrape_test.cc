#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <string>

#include <remora/metrics/registry.h>

namespace remora::metrics {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class ScrapeTest : public ::testing::Test {
 protected:
  std::shared_ptr<Registry> registry_ = Registry::create().value();
};

TEST_F(ScrapeTest, CounterAndGauge) {
  const Counter counter =
      registry_->counter("test_operations_total", "Operations.", {{"op", "read"}}).value();
  registry_->recorder().add(counter, 12'345'678);
  registry_->gauge("test_depth", "Depth.").value().set(-3);
  const std::string text = registry_->text();
  EXPECT_THAT(text, HasSubstr("# HELP test_operations_total Operations.\n"
                              "# TYPE test_operations_total counter\n"
                              "test_operations_total{op=\"read\"} 12345678\n"));
  EXPECT_THAT(text, HasSubstr("# TYPE test_depth gauge\ntest_depth -3\n"));
}

TEST_F(ScrapeTest, LabelValuesAndHelpAreEscaped) {
  ASSERT_TRUE(registry_->counter("test_total", "A back\\slash.",
                                 {{"value", "quote\" back\\slash new\nline \xe2\x82\xac"}}));
  const std::string text = registry_->text();
  EXPECT_THAT(text, HasSubstr(R"(test_total{value="quote\" back\\slash new\nline )"
                              "\xe2\x82\xac\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("# HELP test_total A back\\\\slash.\n"));
}

TEST_F(ScrapeTest, LatencyIsExportedInSeconds) {
  const Histogram latency =
      registry_->histogram("test_latency_seconds", "Latency.", {}, HistogramShape::latency())
          .value();
  const Recorder recorder = registry_->recorder();
  recorder.observe(latency, 900);              // 0.9 us
  recorder.observe(latency, 1'000);            // exactly 1 us: le is inclusive
  recorder.observe(latency, 4'000'000);        // 4 ms
  recorder.observe(latency, 100'000'000'000);  // 100 s: above all bounds
  const std::string text = registry_->text();
  EXPECT_THAT(text, HasSubstr("test_latency_seconds_bucket{le=\"1e-06\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("test_latency_seconds_bucket{le=\"0.002\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("test_latency_seconds_bucket{le=\"0.005\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("test_latency_seconds_bucket{le=\"60\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("test_latency_seconds_bucket{le=\"+Inf\"} 4\n"));
  EXPECT_THAT(text, HasSubstr("test_latency_seconds_count 4\n"));
  EXPECT_THAT(text, HasSubstr("test_latency_seconds_sum 100.0040019\n"));
}

TEST_F(ScrapeTest, PowersOfTwoAreCountedExactly) {
  const Histogram sizes =
      registry_->histogram("test_transfer_bytes", "Sizes.", {}, HistogramShape::bytes()).value();
  const Histogram chain =
      registry_->histogram("test_chain", "Chain.", {}, HistogramShape::counts(64)).value();
  const Recorder recorder = registry_->recorder();
  recorder.observe_n(sizes, 4096, 10);
  recorder.observe_n(sizes, 4097, 5);
  recorder.observe_n(chain, 32, 7);
  recorder.observe_n(chain, 33, 2);
  recorder.observe_n(chain, 0, 3);
  const std::string text = registry_->text();
  EXPECT_THAT(text, HasSubstr("test_transfer_bytes_bucket{le=\"1024\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("test_transfer_bytes_bucket{le=\"4096\"} 10\n"));
  EXPECT_THAT(text, HasSubstr("test_transfer_bytes_bucket{le=\"16384\"} 15\n"));
  EXPECT_THAT(text, HasSubstr("test_chain_bucket{le=\"1\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("test_chain_bucket{le=\"32\"} 10\n"));
  EXPECT_THAT(text, HasSubstr("test_chain_bucket{le=\"64\"} 12\n"));
}

TEST_F(ScrapeTest, HighWaterIsTheMaximumSinceTheLastScrape) {
  const Gauge depth = registry_->gauge("test_depth", "Depth.", {}, HighWater::kExport).value();
  depth.set(50);
  depth.set(2);
  EXPECT_EQ(registry_->high_water(depth), 50);
  EXPECT_EQ(registry_->value("test_depth_high_water").value(), 50.0);
  EXPECT_THAT(registry_->text(), HasSubstr("test_depth_high_water 50\n"));
  EXPECT_THAT(registry_->text(), HasSubstr("test_depth_high_water 2\n"));
  depth.add(4);
  depth.add(-6);
  const std::string text = registry_->text();
  EXPECT_THAT(text, HasSubstr("test_depth 0\n"));
  EXPECT_THAT(text, HasSubstr("test_depth_high_water 6\n"));
}

TEST_F(ScrapeTest, FamilyIsAnnouncedOnce) {
  for (const char* op : {"write", "read", "cas"})
    ASSERT_TRUE(registry_->counter("test_total", "Help.", {{"op", op}}));
  const auto handle =
      registry_->counter_callback("test_total", "Help.", {{"op", "add"}}, [] { return 3.0; });
  ASSERT_TRUE(handle);
  const std::string text = registry_->text();
  EXPECT_EQ(text.find("# TYPE test_total"), text.rfind("# TYPE test_total"));
  EXPECT_THAT(text, HasSubstr("test_total{op=\"add\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("test_total{op=\"write\"} 0\n"));
}

TEST_F(ScrapeTest, EmptyRegistryIsEmptyText) {
  EXPECT_EQ(registry_->text(), "");
  EXPECT_THAT(registry_->text(), Not(HasSubstr("#")));
}

}  // namespace
}  // namespace remora::metrics
