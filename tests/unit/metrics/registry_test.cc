#include <atomic>
#include <chrono>
#include <cmath>
#include <ctime>
#include <gtest/gtest.h>
#include <memory>
#include <stdexcept>
#include <string>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <remora/metrics/process.h>
#include <remora/metrics/registry.h>

namespace remora::metrics {
namespace {

class RegistryTest : public ::testing::Test {
 protected:
  Code counter_error(std::string_view name, const Labels& labels = {},
                     std::string_view help = "Help.") {
    const auto counter = registry_->counter(name, help, labels);
    return counter ? Code::kInternal : counter.error().code();
  }
  std::shared_ptr<Registry> registry_ = Registry::create().value();
};

TEST_F(RegistryTest, SameNameAndLabelsGiveTheSameSeries) {
  const Counter one =
      registry_->counter("test_total", "Help.", {{"op", "read"}, {"status", "ok"}}).value();
  const Counter again =
      registry_->counter("test_total", "Help.", {{"status", "ok"}, {"op", "read"}}).value();
  registry_->recorder().add(one, 2);
  registry_->recorder().add(again, 3);
  EXPECT_EQ(registry_->value(one), 5U);
  EXPECT_EQ(registry_->series_count(), 1U);
  const Gauge gauge = registry_->gauge("test_depth", "Help.").value();
  registry_->gauge("test_depth", "Help.").value().set(9);
  EXPECT_EQ(registry_->value(gauge), 9);
  const auto shape = HistogramShape::bytes();
  const Histogram histogram = registry_->histogram("test_bytes", "Help.", {}, shape).value();
  registry_->recorder().observe(registry_->histogram("test_bytes", "Help.", {}, shape).value(), 1);
  EXPECT_EQ(registry_->value(histogram).count(), 1U);
}

TEST_F(RegistryTest, BadNamesAreInvalid) {
  for (const char* name : {"", "1st_total", "with space_total", "with-dash_total", "a:b_total",
                           "no_suffix", "h\xc3\xa4_total", "new\nline_total"})
    EXPECT_EQ(counter_error(name), Code::kInvalidArgument) << name;
  EXPECT_EQ(counter_error(std::string(200, 'a') + "_total"), Code::kInvalidArgument);
  for (const char* name : {"gauge_total", "gauge_count", "gauge_sum", "gauge_bucket"})
    EXPECT_EQ(registry_->gauge(name, "Help.").error().code(), Code::kInvalidArgument) << name;
  EXPECT_EQ(registry_->histogram("latency", "Help.", {}, HistogramShape::latency()).error().code(),
            Code::kInvalidArgument);
  EXPECT_EQ(registry_->histogram("size", "Help.", {}, HistogramShape::bytes()).error().code(),
            Code::kInvalidArgument);
  const Error error = registry_->counter("no_suffix", "Help.").error();
  EXPECT_EQ(error.subject(), "no_suffix");
  EXPECT_NE(error.message().find("_total"), std::string::npos);
}

TEST_F(RegistryTest, BadHelpIsInvalid) {
  EXPECT_EQ(counter_error("test_total", {}, ""), Code::kInvalidArgument);
  EXPECT_EQ(counter_error("test_total", {}, "two\nlines"), Code::kInvalidArgument);
  EXPECT_EQ(counter_error("test_total", {}, "bad \xff byte"), Code::kInvalidArgument);
  EXPECT_EQ(counter_error("test_total", {}, std::string(1'000, 'x')), Code::kInvalidArgument);
}

TEST_F(RegistryTest, BadLabelsAreInvalid) {
  for (const char* name : {"", "1a", "a-b", "__name__", "le", "quantile", "a:b"})
    EXPECT_EQ(counter_error("test_total", {{name, "x"}}), Code::kInvalidArgument) << name;
  EXPECT_EQ(counter_error("test_total", {{"a", "x"}, {"a", "y"}}), Code::kInvalidArgument);
  for (const std::string& value :
       {std::string{"\xff"}, std::string{"\xc0\xaf"}, std::string{"\xed\xa0\x80"},
        std::string{"\xe2\x82"}, std::string{"\xf5\x80\x80\x80"}, std::string("a\0b", 3),
        std::string(1'000, 'x')})
    EXPECT_EQ(counter_error("test_total", {{"a", value}}), Code::kInvalidArgument) << value;
  EXPECT_EQ(counter_error("test_total", Labels(20, Label{"a", "b"})), Code::kInvalidArgument);
}

TEST_F(RegistryTest, BadBoundsAreInvalid) {
  const auto code = [&](const HistogramShape& shape) {
    return registry_->histogram("test_things", "Help.", {}, shape).error().code();
  };
  EXPECT_EQ(code({Unit::kCount, {}}), Code::kInvalidArgument);
  EXPECT_EQ(code({Unit::kCount, {2, 1}}), Code::kInvalidArgument);
  EXPECT_EQ(code({Unit::kCount, {1, 1}}), Code::kInvalidArgument);
  EXPECT_EQ(code({Unit::kCount, {~std::uint64_t{0}}}), Code::kInvalidArgument);
  HistogramShape many{Unit::kCount, {}};
  for (std::uint64_t i = 1; i < 200; ++i) many.bounds.push_back(i);
  EXPECT_EQ(code(many), Code::kInvalidArgument);
}

TEST_F(RegistryTest, OtherKindOrShapeAlreadyExists) {
  ASSERT_TRUE(registry_->histogram("test_things", "Help.", {}, HistogramShape::counts(8)));
  EXPECT_EQ(registry_->gauge("test_things", "Help.").error().code(), Code::kAlreadyExists);
  EXPECT_EQ(registry_->histogram("test_things", "Help.", {{"a", "b"}}, HistogramShape::counts(16))
                .error()
                .code(),
            Code::kAlreadyExists);
  ASSERT_TRUE(registry_->gauge("test_depth", "Help.", {}, HighWater::kExport));
  EXPECT_EQ(registry_->gauge("test_depth", "Help.").error().code(), Code::kAlreadyExists);
  EXPECT_EQ(registry_->gauge("test_depth_high_water", "Help.").error().code(),
            Code::kAlreadyExists);
  const auto handle = registry_->gauge_callback("test_asked", "Help.", {}, [] { return 1.0; });
  ASSERT_TRUE(handle);
  EXPECT_EQ(registry_->gauge("test_asked", "Help.").error().code(), Code::kAlreadyExists);
  EXPECT_EQ(registry_->gauge_callback("test_asked", "Help.", {}, [] { return 2.0; }).error().code(),
            Code::kAlreadyExists);
  EXPECT_EQ(registry_->gauge_callback("test_empty", "Help.", {}, nullptr).error().code(),
            Code::kInvalidArgument);
}

TEST_F(RegistryTest, BudgetCountsExportedSeries) {
  const auto small = Registry::create({.series_max = 10}).value();
  ASSERT_TRUE(small->gauge("test_depth", "Help.", {}, HighWater::kExport));           // 2
  ASSERT_TRUE(small->histogram("test_things", "Help.", {}, {Unit::kCount, {1, 2}}));  // 5
  ASSERT_TRUE(small->counter("test_total", "Help."));                                 // 1
  EXPECT_EQ(small->series_count(), 8U);
  const Error error = small->histogram("test_others", "Help.", {}, {Unit::kCount, {1, 2}}).error();
  EXPECT_EQ(error.code(), Code::kLimitExceeded);
  EXPECT_EQ(error.asked(), 13U);
  EXPECT_EQ(error.allowed(), 10U);
  ASSERT_TRUE(small->counter("test_total", "Help.", {{"a", "1"}}));
  auto last = small->gauge_callback("test_asked", "Help.", {}, [] { return 1.0; });
  ASSERT_TRUE(last);
  EXPECT_EQ(small->counter("test_total", "Help.", {{"a", "2"}}).error().code(),
            Code::kLimitExceeded);
  EXPECT_TRUE(small->counter("test_total", "Help.", {{"a", "1"}}));  // known: no new series
  last->reset();
  EXPECT_TRUE(small->counter("test_total", "Help.", {{"a", "2"}}));
  // A name that found no room is not taken by it.
  EXPECT_EQ(small->gauge("test_others", "Help.").error().code(), Code::kLimitExceeded);
}

TEST_F(RegistryTest, DefaultBudgetHoldsWhateverIsAsked) {
  int accepted = 0;
  for (int i = 0; i < 1'000; ++i)
    if (registry_->counter("test_total", "Help.", {{"region", std::to_string(i)}})) ++accepted;
  EXPECT_EQ(accepted, 500);
  EXPECT_EQ(registry_->series_count(), 500U);
}

TEST_F(RegistryTest, BadOptionsAreInvalid) {
  EXPECT_EQ(Registry::create({.series_max = 0}).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(Registry::create({.series_max = 1'000'000}).error().code(), Code::kInvalidArgument);
}

TEST_F(RegistryTest, CallbackLivesAsLongAsItsHandle) {
  double value = 1.5;
  {
    const auto handle = registry_->gauge_callback("test_asked", "Help.", {}, [&] { return value; });
    ASSERT_TRUE(handle);
    EXPECT_EQ(registry_->value("test_asked").value(), 1.5);
    value = 2.5;
    EXPECT_NE(registry_->text().find("test_asked 2.5\n"), std::string::npos);
  }
  EXPECT_EQ(registry_->value("test_asked").error().code(), Code::kNotFound);
  EXPECT_EQ(registry_->text().find("test_asked"), std::string::npos);
  EXPECT_EQ(registry_->series_count(), 0U);
  // The name is free again, for another kind too.
  EXPECT_TRUE(registry_->histogram("test_asked", "Help.", {}, HistogramShape::counts()));
}

TEST_F(RegistryTest, CallbackHandleOutlivesRegistryAndMoves) {
  auto handle = registry_->counter_callback("test_total", "Help.", {}, [] { return 1.0; });
  ASSERT_TRUE(handle);
  CallbackHandle moved = *std::move(handle);
  EXPECT_EQ(registry_->sum("test_total").value(), 1.0);
  CallbackHandle target;
  target = std::move(moved);
  EXPECT_EQ(registry_->series_count(), 1U);
  registry_.reset();
  target.reset();
  target.reset();
}

TEST_F(RegistryTest, UnregisteringWaitsForACallInProgress) {
  std::atomic<int> calls{0};
  std::atomic<bool> gone{false};
  std::atomic<bool> touched_after{false};
  auto handle = registry_->gauge_callback("test_asked", "Help.", {}, [&] {
    ++calls;
    std::this_thread::sleep_for(std::chrono::milliseconds{30});
    if (gone) touched_after = true;
    return 1.0;
  });
  ASSERT_TRUE(handle);
  std::thread scraper{[&] { (void)registry_->text(); }};
  while (calls == 0) std::this_thread::yield();
  // The lock is free meanwhile.
  EXPECT_TRUE(registry_->counter("test_total", "Help."));
  handle->reset();
  gone = true;
  scraper.join();
  EXPECT_FALSE(touched_after);
}

TEST_F(RegistryTest, ThrowingCallbackExportsNan) {
  const auto handle = registry_->gauge_callback("test_asked", "Help.", {},
                                                []() -> double { throw std::runtime_error{"no"}; });
  ASSERT_TRUE(handle);
  EXPECT_TRUE(std::isnan(registry_->value("test_asked").value()));
  EXPECT_NE(registry_->text().find("test_asked N"), std::string::npos);
}

TEST_F(RegistryTest, ReadsByNameAndLabels) {
  const auto count = [&](const char* op, const char* status, std::uint64_t n) {
    registry_->recorder().add(
        registry_->counter("test_total", "Help.", {{"op", op}, {"status", status}}).value(), n);
  };
  count("read", "ok", 1);
  count("read", "failed", 2);
  count("write", "ok", 4);
  EXPECT_EQ(registry_->value("test_total", {{"status", "ok"}, {"op", "write"}}).value(), 4.0);
  EXPECT_EQ(registry_->sum("test_total").value(), 7.0);
  EXPECT_EQ(registry_->sum("test_total", {{"op", "read"}}).value(), 3.0);
  EXPECT_EQ(registry_->sum("test_total", {{"op", "cas"}}).value(), 0.0);
  EXPECT_EQ(registry_->value("test_total").error().code(), Code::kNotFound);
  EXPECT_EQ(registry_->sum("absent_total").error().code(), Code::kNotFound);
  EXPECT_EQ(registry_->distribution("test_total").error().code(), Code::kNotFound);
  for (const char* op : {"read", "write"})
    registry_->recorder().observe(
        registry_->histogram("test_things", "Help.", {{"op", op}}, HistogramShape::counts())
            .value(),
        7);
  EXPECT_EQ(registry_->distribution("test_things").value().count(), 2U);
  EXPECT_EQ(registry_->distribution("test_things", {{"op", "read"}}).value().percentile(50), 7U);
  EXPECT_EQ(registry_->value("test_things", {{"op", "read"}}).error().code(), Code::kNotFound);
}

TEST_F(RegistryTest, ProcessMetricsAreThere) {
  ASSERT_TRUE(register_process_metrics(*registry_, "1.2.3"));
  EXPECT_EQ(registry_->value("remora_build_info", {{"version", "1.2.3"}}).value(), 1.0);
  EXPECT_GT(registry_->value("process_resident_memory_bytes").value(), 1e6);
  EXPECT_GT(registry_->value("process_virtual_memory_bytes").value(), 1e6);
  EXPECT_GE(registry_->value("process_open_fds").value(), 3.0);
  EXPECT_GT(registry_->value("process_max_fds").value(), 3.0);
  EXPECT_GE(registry_->value("process_threads").value(), 1.0);
  EXPECT_GE(registry_->value("process_pinned_memory_bytes").value(), 0.0);
  // What is locked shows, in whole pages.
  const double before = registry_->value("process_locked_memory_bytes").value();
  std::vector<char> bytes(std::size_t{16} * 4096);
  // By the system call: sanitizers answer the function themselves.
  if (::syscall(SYS_mlock, bytes.data(), bytes.size()) == 0) {
    EXPECT_GE(registry_->value("process_locked_memory_bytes").value() - before, 15 * 4096.0);
    ::syscall(SYS_munlock, bytes.data(), bytes.size());
  }
  EXPECT_GT(registry_->value("process_cpu_seconds_total").value(), 0.0);
  const auto now = static_cast<double>(std::time(nullptr));
  EXPECT_NEAR(registry_->value("process_start_time_seconds").value(), now, 600.0);
  EXPECT_EQ(register_process_metrics(*registry_, "1.2.3").error().code(), Code::kAlreadyExists);
}

}  // namespace
}  // namespace remora::metrics
