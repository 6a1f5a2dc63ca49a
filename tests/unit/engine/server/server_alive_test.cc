/// Whether a server makes progress: a worker that stands still is noticed, and one that takes steps
/// is not.

#include <chrono>
#include <future>
#include <gtest/gtest.h>
#include <memory>
#include <utility>
#include <vector>

#include "server/server_core.h"
#include "support/eventually.h"
#include "unit/engine/server/local_clients.h"

namespace remora::detail {
namespace {

class ServerAliveTest : public testing::Test {
 protected:
  void SetUp() override {
    config::ServerConfig config;
    config.transports.rdma = config::Availability::kOff;
    config.auth = config::Auth::kNone;
    config.pool = {
        .size_bytes = 1U << 20U, .piece_bytes = 1U << 20U, .huge_pages = config::HugePages::kNever};
    // Ten times that: a second without a step.
    config.limits.request_timeout = std::chrono::milliseconds{100};
    config.limits.drain_timeout = std::chrono::seconds{0};
    ListenerSet listeners;
    listeners.add(std::make_unique<test::LocalListener>());
    StatusEndpoint status{std::make_shared<ServerStatusReport>(std::vector<RefusedTransport>{})};
    core_ = ServerCore::start_behind(
                config, ServerMetrics::create(metrics::Registry::create().value()).value(),
                std::move(listeners), std::move(status), {})
                .value();
  }
  void TearDown() override { core_.reset(); }
  [[nodiscard]] bool soon_alive() const {
    return test::eventually([this] { return core_->alive().ok(); });
  }

  std::unique_ptr<ServerCore> core_;
};

TEST_F(ServerAliveTest, OneThatHasNothingToDoIs) { EXPECT_TRUE(soon_alive()); }

TEST_F(ServerAliveTest, WorkerThatStandsStillIsNoticedUntilItGoesOn) {
  std::promise<void> goes_on;
  ASSERT_TRUE(core_->enqueue([waits = goes_on.get_future().share()] { waits.wait(); }));
  Status status;
  EXPECT_TRUE(test::eventually([&] {
    status = core_->alive();
    return !status.ok();
  }));
  EXPECT_EQ(status.error().code(), Code::kTimedOut);
  EXPECT_TRUE(status.error().subject().starts_with("a request is at work without a step for "))
      << status.error();
  goes_on.set_value();
  EXPECT_TRUE(soon_alive());
}

TEST_F(ServerAliveTest, LimitOfTheRunningServerCounts) {
  config::Limits limits = core_->limits();
  limits.request_timeout = std::chrono::hours{1};
  ASSERT_TRUE(core_->set_limits(limits).ok());
  std::promise<void> goes_on;
  ASSERT_TRUE(core_->enqueue([waits = goes_on.get_future().share()] { waits.wait(); }));
  EXPECT_TRUE(test::eventually([&] { return core_->job_age() >= std::chrono::seconds{1}; }));
  EXPECT_TRUE(soon_alive()) << "ten hours have not passed";
  goes_on.set_value();
}

}  // namespace
}  // namespace remora::detail
