/// The series of a server's registration: by a clock of the test.

#include "server/cluster_metrics.h"

#include <gtest/gtest.h>

namespace remora::apps {
namespace {

using namespace std::chrono_literals;

ClusterMetrics::Clock::time_point g_now{};
ClusterMetrics::Clock::time_point test_now() { return g_now; }

class ClusterMetricsTest : public testing::Test {
 protected:
  void SetUp() override {
    g_now = ClusterMetrics::Clock::time_point{1h};
    registry_ = metrics::Registry::create().value();
    metrics_ = ClusterMetrics::create(registry_, 10s, test_now).value();
  }
  [[nodiscard]] double value(std::string_view name, const metrics::Labels& labels = {}) const {
    return registry_->value(name, labels).value();
  }
  [[nodiscard]] double registered() const { return value("remora_server_cluster_registered"); }
  [[nodiscard]] double age() const { return value("remora_server_cluster_keep_alive_age_seconds"); }

  std::shared_ptr<metrics::Registry> registry_;
  std::unique_ptr<ClusterMetrics> metrics_;
};

TEST_F(ClusterMetricsTest, ServerThatHasNeverRegisteredCountsFromItsStart) {
  EXPECT_EQ(registered(), 0);
  g_now += 7s;
  EXPECT_EQ(age(), 7);
  EXPECT_EQ(registered(), 0);
}

TEST_F(ClusterMetricsTest, RecordCountsForAsLongAsItsLease) {
  metrics_->lease_renewed();
  metrics_->set_registered(true);
  EXPECT_EQ(registered(), 1);
  g_now += 10s;
  EXPECT_EQ(registered(), 1);
  EXPECT_EQ(age(), 10);
  // The store does not answer: the lease ends there, and the record with it.
  g_now += 1ms;
  EXPECT_EQ(registered(), 0);
  metrics_->lease_renewed();
  EXPECT_EQ(registered(), 1);
  EXPECT_EQ(age(), 0);
}

TEST_F(ClusterMetricsTest, RecordThatAnotherServerTookIsNoneOfThisServer) {
  metrics_->lease_renewed();
  metrics_->set_registered(true);
  metrics_->set_registered(false);
  EXPECT_EQ(registered(), 0);
}

TEST_F(ClusterMetricsTest, FailuresAreCountedByReason) {
  metrics_->failed(ClusterMetrics::Failure::kStore);
  metrics_->failed(ClusterMetrics::Failure::kStore);
  metrics_->failed(ClusterMetrics::Failure::kNameTaken);
  EXPECT_EQ(value("remora_server_cluster_errors_total", {{"reason", "store"}}), 2);
  EXPECT_EQ(value("remora_server_cluster_errors_total", {{"reason", "name_taken"}}), 1);
}

TEST_F(ClusterMetricsTest, GaugesGoWithTheRegistration) {
  metrics_.reset();
  EXPECT_EQ(registry_->value("remora_server_cluster_registered").error().code(), Code::kNotFound);
}

TEST_F(ClusterMetricsTest, SecondRegistrationOfOneProcessIsRefused) {
  const auto second = ClusterMetrics::create(registry_, 10s);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code(), Code::kAlreadyExists);
}

}  // namespace
}  // namespace remora::apps
