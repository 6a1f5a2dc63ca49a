/// How a session looks for its rails.

#include "transport/rdma/client_rails.h"

#include <chrono>
#include <gtest/gtest.h>
#include <memory>
#include <string>

#include "unit/verbs/fake_verbs.h"

namespace remora::transport::rdma {
namespace {

class ClientRailsTest : public test::FakeTest {
 protected:
  void SetUp() override {
    fake_.play(*test::find_device_profile("mlx5"));
    plan_ = std::make_shared<RailPlan>(RailChoice::parse("auto").value());
    plan_->set_first("10.0.0.1");
    plan_->learn({{"10.0.0.1", "mlx5_0"}, {"10.0.1.1", "mlx5_1"}});
    memory_ = RailDomain::of_process().value();
    const auto first = verbs::Address::parse("10.0.0.1", 7471).value();
    rails_ = std::make_unique<ClientRails>(
        plan_, memory_,
        ClientRails::make_rail(
            *memory_,
            ClientDomain::of(verbs::connection_manager_devices(fake_.provider()).value().front(),
                             first)
                .value(),
            first, {})
            .value(),
        ClientRails::Options{.port = 7471, .provider = &fake_.table});
  }
  void TearDown() override {
    rails_.reset();
    memory_.reset();
    FakeTest::TearDown();
  }
  static Deadline later() { return Clock::now() + std::chrono::seconds{2}; }

  std::shared_ptr<RailPlan> plan_;
  std::shared_ptr<RailDomain> memory_;
  std::unique_ptr<ClientRails> rails_;
};

TEST_F(ClientRailsTest, LanesTakeTheRailsInTurn) {
  EXPECT_EQ(rails_->find(later()), 2U);
  EXPECT_EQ(rails_->of_lane(0).front().shown->server_device, "mlx5_0");
  EXPECT_EQ(rails_->of_lane(1).front().shown->server_device, "mlx5_1");
  EXPECT_EQ(rails_->of_lane(2).front().shown->server_device, "mlx5_0");
}

TEST_F(ClientRailsTest, LaneInPlaceOfAnotherKnowsItsHome) {
  plan_->set_failed("10.0.1.1", Clock::now());
  EXPECT_EQ(rails_->find(later()), 2U) << "also one that does not answer";
  ASSERT_EQ(rails_->of_lane(1).size(), 1U);
  EXPECT_EQ(rails_->of_lane(1).front().shown->server_device, "mlx5_0");
  EXPECT_EQ(rails_->of_lane(1).front().shown->home_device, "mlx5_1");
}

TEST_F(ClientRailsTest, RailThatHasFailedSinceIsTriedLast) {
  ASSERT_EQ(rails_->find(later()), 2U);
  plan_->set_failed("10.0.1.1", Clock::now());
  const auto to_try = rails_->of_lane(1);
  ASSERT_EQ(to_try.size(), 2U);
  EXPECT_EQ(to_try.front().shown->server_device, "mlx5_0");
}

TEST_F(ClientRailsTest, ConnectionGoesByTheRouteOfTheHostUnlessItsDeviceWasTried) {
  fake_.others.emplace_back("fake1");
  const ClientRails::Options how{.provider = &fake_.table};
  const auto peer = verbs::Address::parse("10.0.0.1", 7471).value();
  const RailChoice any = RailChoice::parse("auto").value();
  const auto route = ClientRails::route_to(peer, any, {}, later(), how);
  ASSERT_OK(route);
  EXPECT_EQ(route->connector.device().name(), "fake0");
  EXPECT_FALSE(route->source.has_value());
  EXPECT_FALSE(ClientRails::route_to(peer, any, {"fake0"}, later(), how)) << "all lead over fake0";
  fake_.route = &fake_.others.front().cm_context;
  const auto other = ClientRails::route_to(peer, any, {"fake0"}, later(), how);
  ASSERT_OK(other);
  EXPECT_EQ(other->connector.device().name(), "fake1");
}

/// As the control thread does where the lease is 10 s or more.
TEST_F(ClientRailsTest, RailThatAnswersIsFoundByLooksASecondApart) {
  constexpr std::chrono::milliseconds kBetween{1100};
  const Clock::time_point first = Clock::now();
  plan_->set_failed("10.0.1.1", first - std::chrono::minutes{1});
  rails_->look(first);
  EXPECT_EQ(fake_.uses("resolve_addr"), 1);
  rails_->look(first + kBetween);
  EXPECT_EQ(fake_.uses("resolve_route"), 1);
  EXPECT_FALSE(plan_->any_answered());
  rails_->look(first + 2 * kBetween);
  EXPECT_TRUE(plan_->any_answered());
}

/// The lanes are to be opened in the same time.
TEST_F(ClientRailsTest, SearchTakesAQuarterOfTheTime) {
  for (int i = 1; i <= 6; ++i) fake_.others.emplace_back("fake" + std::to_string(i));
  EXPECT_EQ(rails_->find(Clock::now() + std::chrono::seconds{1}), 2U)
      << "over the first device, since no other one leads there";
  EXPECT_LE(fake_.resolve_longest_ms, 250);
  EXPECT_GE(fake_.uses("resolve_addr"), 7);
}

}  // namespace
}  // namespace remora::transport::rdma
