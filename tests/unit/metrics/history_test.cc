#include "history.h"

#include <chrono>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <thread>

#include <remora/metrics/registry.h>

namespace remora::metrics {
namespace {

using nlohmann::json;

class HistoryTest : public ::testing::Test {
 protected:
  void sample(std::int64_t unix_ms) {
    history_.sample(std::chrono::system_clock::time_point{std::chrono::milliseconds{unix_ms}});
  }
  [[nodiscard]] json all(std::uint64_t since = 0) const {
    return json::parse(history_.json(since));
  }
  // The series of that name and labels; null where there is none.
  static json find(const json& answer, const std::string& name,
                   const json& labels = json::object()) {
    for (const json& series : answer["series"])
      if (series["name"] == name && series["labels"] == labels) return series;
    return nullptr;
  }

  std::shared_ptr<Registry> registry_ = Registry::create().value();
  History history_{registry_, {.samples_max = 3}};
};

TEST_F(HistoryTest, IsEmptyAtFirst) {
  const json answer = all();
  EXPECT_EQ(answer["first"], 0);
  EXPECT_EQ(answer["next"], 0);
  EXPECT_EQ(answer["kept"], 3);
  EXPECT_EQ(answer["period_ms"], 2000);
  EXPECT_EQ(answer["times_ms"], json::array());
  EXPECT_EQ(answer["series"], json::array());
}

TEST_F(HistoryTest, CountersAndGaugesOverTime) {
  const Counter counter = registry_->counter("test_total", "Help.", {{"op", "read"}}).value();
  const Gauge gauge = registry_->gauge("test_depth", "Help.").value();
  registry_->recorder().add(counter, 5);
  gauge.set(-2);
  sample(1'000);
  registry_->recorder().add(counter, 7);
  gauge.set(3);
  sample(3'000);
  const json answer = all();
  EXPECT_EQ(answer["times_ms"], (json{1'000, 3'000}));
  const json counted = find(answer, "test_total", {{"op", "read"}});
  EXPECT_EQ(counted["kind"], "counter");
  EXPECT_EQ(counted["values"], (json{5, 12}));
  EXPECT_EQ(find(answer, "test_depth")["kind"], "gauge");
  EXPECT_EQ(find(answer, "test_depth")["values"], (json{-2, 3}));
}

TEST_F(HistoryTest, SinceGivesOnlyWhatIsNew) {
  const Counter counter = registry_->counter("test_total", "Help.").value();
  sample(1'000);
  registry_->recorder().add(counter, 1);
  sample(3'000);
  const json answer = all(1);
  EXPECT_EQ(answer["first"], 1);
  EXPECT_EQ(answer["next"], 2);
  EXPECT_EQ(answer["times_ms"], json{3'000});
  EXPECT_EQ(find(answer, "test_total")["values"], json{1});
  EXPECT_EQ(all(2)["times_ms"], json::array());
  // A number from a longer history: nothing, and the true place to go on from.
  EXPECT_EQ(all(99)["first"], 2);
  EXPECT_EQ(all(99)["next"], 2);
}

TEST_F(HistoryTest, OldSamplesMakeRoom) {
  const Counter counter = registry_->counter("test_total", "Help.").value();
  for (int i = 0; i < 5; ++i) {
    registry_->recorder().add(counter);
    sample(i);
  }
  const json answer = all();
  EXPECT_EQ(answer["first"], 2);
  EXPECT_EQ(answer["next"], 5);
  EXPECT_EQ(answer["times_ms"], (json{2, 3, 4}));
  EXPECT_EQ(find(answer, "test_total")["values"], (json{3, 4, 5}));
}

TEST_F(HistoryTest, SeriesThatComeAndGoHaveNullsAndAreForgotten) {
  sample(0);
  auto handle = registry_->gauge_callback("test_level", "Help.", {}, [] { return 1.5; }).value();
  sample(1);
  EXPECT_EQ(find(all(), "test_level")["values"], (json{nullptr, 1.5}));
  handle.reset();
  sample(2);
  EXPECT_EQ(find(all(), "test_level")["values"], (json{nullptr, 1.5, nullptr}));
  sample(3);
  sample(4);
  EXPECT_EQ(find(all(), "test_level"), nullptr);
}

TEST_F(HistoryTest, NameOfASeriesThatHasGoneMayBeOfAnotherKind) {
  auto handle = registry_->gauge_callback("test_seconds", "Help.", {}, [] { return 1.5; }).value();
  sample(0);
  handle.reset();
  const Histogram latency =
      registry_->histogram("test_seconds", "Help.", {}, HistogramShape::latency()).value();
  registry_->recorder().observe(latency, 1'024);
  sample(1);
  const json series = find(all(), "test_seconds");
  EXPECT_EQ(series["kind"], "histogram");
  EXPECT_EQ(series["unit"], "seconds");
  EXPECT_EQ(series["count"], (json{nullptr, 1}));
}

TEST_F(HistoryTest, CallbackThatThrowsIsNull) {
  const auto handle =
      registry_
          ->gauge_callback("test_level", "Help.", {},
                           []() -> double { throw std::runtime_error{"no such file"}; })
          .value();
  registry_->gauge("test_depth", "Help.").value().set(1);
  sample(0);
  EXPECT_EQ(find(all(), "test_level")["values"], json{nullptr});
  EXPECT_EQ(find(all(), "test_depth")["values"], json{1});
}

TEST_F(HistoryTest, PercentilesAreThoseOfTheInterval) {
  const Histogram latency =
      registry_->histogram("test_latency_seconds", "Help.", {}, HistogramShape::latency()).value();
  const Recorder recorder = registry_->recorder();
  recorder.observe_n(latency, 1'048'576, 1'000);  // powers of two are exact
  sample(0);
  recorder.observe_n(latency, 1'024, 999);
  recorder.observe(latency, 2'097'152);
  sample(1);
  sample(2);
  const json series = find(all(), "test_latency_seconds");
  EXPECT_EQ(series["kind"], "histogram");
  EXPECT_EQ(series["unit"], "seconds");
  EXPECT_EQ(series["count"], (json{1'000, 2'000, 2'000}));
  EXPECT_EQ(series["p50"], (json{1'048'576 / 1e9, 1'024 / 1e9, nullptr}));
  EXPECT_EQ(series["p90"][1], 1'024 / 1e9);
  EXPECT_EQ(series["p999"][1], 1'024 / 1e9);
  EXPECT_EQ(series["max"], (json{1'048'576 / 1e9, 2'097'152 / 1e9, nullptr}));
  EXPECT_NEAR(series["sum"][2].get<double>(),
              (1'000.0 * 1'048'576 + 999.0 * 1'024 + 2'097'152) / 1e9, 1e-9);
}

// The page and Prometheus look at the same marks and must not take them from each other.
TEST_F(HistoryTest, HighWaterMarksAreItsOwn) {
  const Gauge gauge = registry_->gauge("test_depth", "Help.", {}, HighWater::kExport).value();
  gauge.set(9);
  gauge.set(1);
  sample(0);
  EXPECT_THAT(registry_->text(), ::testing::HasSubstr("test_depth_high_water 9\n"));
  gauge.set(4);
  gauge.set(2);
  EXPECT_THAT(registry_->text(), ::testing::HasSubstr("test_depth_high_water 4\n"));
  EXPECT_THAT(registry_->text(), ::testing::HasSubstr("test_depth_high_water 2\n"));
  sample(1);
  sample(2);
  EXPECT_EQ(find(all(), "test_depth_high_water")["values"], (json{9, 4, 2}));
}

TEST_F(HistoryTest, ReadsLeaveMarksAlone) {
  const Gauge gauge = registry_->gauge("test_depth", "Help.", {}, HighWater::kExport).value();
  gauge.set(9);
  gauge.set(1);
  sample(0);
  EXPECT_EQ(registry_->high_water(gauge), 9);
  EXPECT_EQ(registry_->value("test_depth_high_water").value(), 9);
  EXPECT_EQ(registry_->high_water(gauge), 9);
}

TEST_F(HistoryTest, EveryHistoryHasANameOfItsOwn) {
  const History other{registry_, {.samples_max = 3}};
  EXPECT_NE(json::parse(other.json(0))["process"], all()["process"]);
  EXPECT_EQ(all()["process"], all()["process"]);
}

TEST_F(HistoryTest, ItsThreadTakesSamplesAndEndsAtOnce) {
  registry_->counter("test_total", "Help.").value();
  const auto began = std::chrono::steady_clock::now();
  {
    History history{registry_, {.period = std::chrono::milliseconds{1}, .samples_max = 1'000}};
    ASSERT_TRUE(history.start());
    while (json::parse(history.json(0))["next"] < 5) {
      ASSERT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds{30});
      std::this_thread::yield();
    }
  }
  History idle{registry_, {.period = std::chrono::hours{1}, .samples_max = 2}};
  ASSERT_TRUE(idle.start());  // and ends without waiting for the hour
}

}  // namespace
}  // namespace remora::metrics
