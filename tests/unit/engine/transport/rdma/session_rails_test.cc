/// Grants that are registered with several devices, and sessions that go from one to the other.

#include "transport/rdma/session_rails.h"

#include <array>
#include <cerrno>
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include "transport/rdma/server_endpoint.h"
#include "unit/verbs/fake_verbs.h"

namespace remora::transport::rdma {
namespace {

class SessionRailsTest : public test::FakeTest {
 protected:
  void SetUp() override {
    fake_.play(*test::find_device_profile("mlx5"));
    fake_.others.emplace_back("fake1");
  }
  void TearDown() override {
    listener_.reset();
    reaper_.reset();
    FakeTest::TearDown();
  }
  static Deadline later() { return Clock::now() + std::chrono::seconds{10}; }
  static verbs::Address peer() { return verbs::Address::parse("10.0.0.1", 7471).value(); }
  /// From here on everything is reached, and knocks, over that device.
  void route_over(std::size_t index) {
    fake_.route = index == 0 ? nullptr : &fake_.others[index - 1].cm_context;
  }
  verbs::Device device(std::size_t index) {
    return verbs::connection_manager_devices(fake_.provider()).value()[index];
  }
  /// A session whose control channel is over the present route, and which has rails.
  std::unique_ptr<RdmaServerEndpoint> connect() {
    auto connector = verbs::Connector::resolve(peer(), later(), {}, fake_.table).value();
    auto domain = connector.device().allocate_domain().value();
    auto buffers = ControlBuffers::create(domain).value();
    EXPECT_TRUE(connector.create_queue_pair(buffers.builder()));
    auto made = std::make_unique<RdmaServerEndpoint>(
        lanes_, reaper_, domains_, budgets_of(0).registrations, nullptr, std::move(buffers),
        connector.connect(later()).value(), FdSet::create().value());
    EXPECT_NE(made->use_lane_keys(), nullptr);
    EXPECT_TRUE(made->use_rails());
    return made;
  }
  Status add_lane(RdmaServerEndpoint& endpoint, std::uint32_t number, std::size_t over) {
    route_over(over);
    fake_.knock("");
    auto request = listener_->next_request();
    if (!request) return request.error();
    return endpoint.add_lane(**request, number, {}, budgets_of(over));
  }
  GrantBudgets budgets_of(std::size_t index) {
    return {.registrations = registrations_->of("fake" + std::to_string(index), 0),
            .bytes = bytes_};
  }
  GrantRequest request() {
    return {.extents = {&stretch_, 1}, .rights = Rights::kAll, .atomic_domain = "fake0"};
  }

  const std::shared_ptr<RegistrationBudgets> registrations_ =
      std::make_shared<RegistrationBudgets>(1000);
  const std::shared_ptr<Budget> bytes_ = registered_bytes_budget(24'576);
  const std::shared_ptr<GrantDomains> domains_ =
      std::make_shared<GrantDomains>(registrations_, bytes_);
  std::vector<std::byte> memory_ = std::vector<std::byte>(16'384);
  const MemoryStretch stretch_{memory_.data(), 8192};
  std::shared_ptr<LaneRegistry> lanes_ = std::make_shared<LaneRegistry>();
  /// Destroys what it takes on the thread that calls it: the fake is for one thread.
  std::shared_ptr<Reaper> reaper_ = std::make_shared<Reaper>(0);
  std::optional<verbs::ConnectionListener> listener_ =
      verbs::ConnectionListener::bind(peer(), 8, fake_.table).value();
};

TEST_F(SessionRailsTest, GrantHasOneAddressAndAKeyOnEachDevice) {
  SessionRails rails;
  const auto first = rails.place_on(device(0), budgets_of(0)).value();
  const auto second = rails.place_on(device(1), budgets_of(1)).value();
  RailGrant grant{request(), rails.next_move()};
  ASSERT_OK(grant.register_on(first));
  ASSERT_OK(grant.register_on(second));
  ASSERT_OK(grant.register_on(second));
  ASSERT_EQ(fake_.registered.size(), 2U) << "once with each";
  EXPECT_EQ(fake_.registered[0].iova, fake_.registered[1].iova);
  EXPECT_EQ(grant.extents().front().remote_address, fake_.registered[0].iova);
  EXPECT_NE(grant.key_on(device(0), 0), grant.key_on(device(1), 0));
  EXPECT_EQ(registrations_->used(), 2U);
  EXPECT_TRUE(grant.revoke());
  EXPECT_EQ(grant.key_on(device(0), 0), 0U);
  EXPECT_EQ(registrations_->used(), 0U);
}

TEST_F(SessionRailsTest, StopOfTheServerEndsARegistrationBetweenTwoExtents) {
  static std::stop_source stop;
  static verbs::Provider before;
  stop = {};
  before = fake_.table;
  fake_.table.reg_mr_iova = [](ibv_pd* domain, void* address, std::size_t length,
                               std::uint64_t iova, unsigned access) {
    stop.request_stop();
    return before.reg_mr_iova(domain, address, length, iova, access);
  };
  SessionRails rails;
  const auto first = rails.place_on(device(0), budgets_of(0)).value();
  const std::array extents{MemoryStretch{memory_.data(), 4096},
                           MemoryStretch{memory_.data() + 4096, 4096}};
  RailGrant grant{{.extents = extents, .rights = Rights::kAll, .stop = stop.get_token()},
                  rails.next_move()};
  EXPECT_CODE(grant.register_on(first), kCancelled);
  EXPECT_EQ(fake_.uses("reg_mr_iova"), 1);
  EXPECT_EQ(fake_.uses("dereg_mr"), 1);
  EXPECT_FALSE(grant.is_on(device(0)));
  EXPECT_EQ(registrations_->used(), 0U);
}

TEST_F(SessionRailsTest, AtomicsAreOnTheDeviceOfTheirDomainAlone) {
  SessionRails rails;
  RailGrant grant{request(), rails.next_move()};
  ASSERT_OK(grant.register_on(rails.place_on(device(0), budgets_of(0)).value()));
  EXPECT_NE(fake_.registered.back().access & IBV_ACCESS_REMOTE_ATOMIC, 0U);
  ASSERT_OK(grant.register_on(rails.place_on(device(1), budgets_of(1)).value()));
  EXPECT_EQ(fake_.registered.back().access & IBV_ACCESS_REMOTE_ATOMIC, 0U);
  EXPECT_NE(fake_.registered.back().access & IBV_ACCESS_REMOTE_WRITE, 0U);
}

TEST_F(SessionRailsTest, RegisteredBytesCountOnEachDevice) {
  SessionRails rails;
  const auto first = rails.place_on(device(0), budgets_of(0)).value();
  const auto second = rails.place_on(device(1), budgets_of(1)).value();
  RailGrant grant{request(), rails.next_move()};
  ASSERT_OK(grant.register_on(first));
  ASSERT_OK(grant.register_on(second));
  EXPECT_EQ(bytes_->used(), 2 * stretch_.length_bytes);
  RailGrant next{request(), rails.next_move()};
  ASSERT_OK(next.register_on(first));
  EXPECT_CODE(next.register_on(second), kLimitExceeded);
  EXPECT_TRUE(next.revoke());
  EXPECT_TRUE(grant.revoke());
  EXPECT_EQ(bytes_->used(), 0U);
}

TEST_F(SessionRailsTest, AddressOfTheProcessBeforeIsKept) {
  auto endpoint = connect();
  ASSERT_OK(add_lane(*endpoint, 0, 0));
  const auto there = reinterpret_cast<std::uintptr_t>(stretch_.address);
  GrantRequest again = request();
  again.address = there + (std::uint64_t{7} << 48U);
  auto kept = endpoint->grant(again);
  ASSERT_OK(kept);
  EXPECT_EQ(kept->extents.front().remote_address, again.address);
  auto next = endpoint->grant(request());
  ASSERT_OK(next);
  EXPECT_EQ(next->extents.front().remote_address, there + (std::uint64_t{8} << 48U));
  for (const std::uint64_t other : {std::uint64_t{there}, again.address + 1}) {
    again.address = other;
    const auto refused = endpoint->grant(again);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code(), Code::kAccessRefused);
    EXPECT_EQ(refused.error().reason(), Reason::kRevoked);
  }
  *kept = {};
  *next = {};
  endpoint.reset();
}

TEST_F(SessionRailsTest, SessionWithRailsSharesNothing) {
  const auto key = config::SecretKey::generate();
  ASSERT_OK(key);
  auto first = connect();
  auto second = connect();
  first->join_client("client", *key);
  second->join_client("client", *key);
  EXPECT_EQ(domains_->count(), 0U);
  ASSERT_OK(add_lane(*first, 0, 0));
  ASSERT_OK(add_lane(*second, 0, 0));
  auto one = first->grant(request());
  ASSERT_OK(one);
  auto two = second->grant(request());
  ASSERT_OK(two);
  EXPECT_NE(one->extents.front().remote_key, two->extents.front().remote_key);
  *one = {};
  *two = {};
  first.reset();
  second.reset();
}

TEST_F(SessionRailsTest, NoTwoGrantsHaveOneAddress) {
  SessionRails rails;
  const auto place = rails.place_on(device(0), budgets_of(0)).value();
  RailGrant first{request(), rails.next_move()};
  RailGrant second{request(), rails.next_move()};
  ASSERT_OK(first.register_on(place));
  ASSERT_OK(second.register_on(place));
  EXPECT_NE(first.extents().front().remote_address, second.extents().front().remote_address);
}

TEST_F(SessionRailsTest, WhatIsOnADeviceThatHasGoneIsGivenUpAndTheRestStays) {
  SessionRails rails;
  RailGrant grant{request(), rails.next_move()};
  ASSERT_OK(grant.register_on(rails.place_on(device(0), budgets_of(0)).value()));
  ASSERT_OK(grant.register_on(rails.place_on(device(1), budgets_of(1)).value()));
  const std::uint32_t key = grant.key_on(device(0), 0);
  device(1).mark_gone();
  EXPECT_TRUE(rails.any_gone());
  grant.leave_device();
  rails.leave_gone();
  EXPECT_FALSE(rails.any_gone());
  EXPECT_EQ(rails.places().size(), 1U);
  EXPECT_EQ(registrations_->used(), 1U);
  EXPECT_EQ(grant.key_on(device(0), 0), key);
}

TEST_F(SessionRailsTest, LanesOfTwoDevicesHaveKeysOfTheirOwn) {
  auto endpoint = connect();
  ASSERT_OK(add_lane(*endpoint, 0, 0));
  ASSERT_OK(add_lane(*endpoint, 1, 1));
  auto grant = endpoint->grant(request());
  ASSERT_OK(grant);
  ASSERT_EQ(grant->lane_keys.lanes, 2U);
  ASSERT_EQ(grant->lane_keys.keys.size(), 2U);
  EXPECT_NE(grant->lane_keys.keys[0], 0U);
  EXPECT_NE(grant->lane_keys.keys[1], 0U);
  EXPECT_NE(grant->lane_keys.keys[0], grant->lane_keys.keys[1]);
  EXPECT_TRUE(grant->handle->revoke());
  *grant = {};
  endpoint.reset();
}

/// The answer to its first request was late: the client knows nothing of that lane.
TEST_F(SessionRailsTest, LaneThatIsTriedOverAnotherRailReplacesTheOneThatWasGivenUp) {
  auto endpoint = connect();
  ASSERT_OK(add_lane(*endpoint, 0, 0));
  ASSERT_OK(add_lane(*endpoint, 1, 1));
  ASSERT_OK(add_lane(*endpoint, 1, 0));
  auto grant = endpoint->grant(request());
  ASSERT_OK(grant);
  ASSERT_EQ(grant->lane_keys.keys.size(), 2U);
  EXPECT_NE(grant->lane_keys.keys[0], 0U);
  EXPECT_EQ(grant->lane_keys.keys[0], grant->lane_keys.keys[1]) << "on one device";
  EXPECT_TRUE(grant->handle->revoke());
  *grant = {};
  endpoint.reset();
}

/// Pages are pinned, and count, on each device anew.
TEST_F(SessionRailsTest, DeviceWithoutRoomCostsNoGrantThatAnotherOneHas) {
  auto endpoint = connect();
  ASSERT_OK(add_lane(*endpoint, 0, 0));
  std::array<std::optional<Grant>, 3> grants;  // all that there is room for
  for (auto& each : grants) {
    auto made = endpoint->grant(request());
    ASSERT_OK(made);
    each.emplace(std::move(*made));
  }
  ASSERT_OK(add_lane(*endpoint, 1, 1));
  Grant& first = *grants[0];
  const std::uint32_t key = first.extents.front().remote_key;
  EXPECT_TRUE(endpoint->use_lane_keys()->registers_again(first));
  ASSERT_OK(endpoint->use_lane_keys()->renew(first));
  EXPECT_EQ(first.lane_keys.keys, (std::vector<std::uint32_t>{key, 0}));
  EXPECT_CODE(endpoint->grant(request()), kLimitExceeded);  // a new grant is everywhere or not
  for (auto& each : grants) {
    EXPECT_TRUE(each->handle->revoke());
    each.reset();
  }
  endpoint.reset();
}

TEST_F(SessionRailsTest, GrantIsRegisteredWhereLanesAre) {
  auto before = connect();
  ASSERT_OK(add_lane(*before, 0, 0));
  ASSERT_OK(add_lane(*before, 1, 1));
  before->shutdown();
  before->destroy_lanes();
  route_over(0);
  auto next = connect();
  ASSERT_OK(next->take_over(*before));
  ASSERT_OK(add_lane(*next, 0, 0));
  const std::uint64_t used = registrations_->used();
  auto grant = next->grant(request());
  ASSERT_OK(grant);
  EXPECT_EQ(registrations_->used(), used + 1);
  *grant = {};
  before.reset();
  next.reset();
}

TEST_F(SessionRailsTest, SessionResumesOverTheOtherDeviceWithItsGrants) {
  auto before = connect();
  ASSERT_OK(add_lane(*before, 0, 0));
  ASSERT_OK(add_lane(*before, 1, 1));
  auto grant = before->grant(request());
  ASSERT_OK(grant);
  const WireExtent extent = grant->extents.front();
  const std::uint32_t key = grant->lane_keys.keys[1];
  before->shutdown();
  before->destroy_lanes();
  device(0).mark_gone();
  EXPECT_TRUE(before->device_gone());
  grant->handle->leave_device();
  route_over(1);
  auto next = connect();
  ASSERT_OK(next->take_over(*before));
  ASSERT_OK(add_lane(*next, 0, 1));
  ASSERT_OK(add_lane(*next, 1, 1));
  auto* const renewal = next->use_lane_keys();
  ASSERT_NE(renewal, nullptr);
  EXPECT_FALSE(renewal->registers_again(*grant));
  ASSERT_OK(renewal->renew(*grant));
  EXPECT_EQ(grant->extents.front().remote_address, extent.remote_address) << "operations wait";
  EXPECT_EQ(grant->lane_keys.keys, (std::vector<std::uint32_t>{key, key})) << "it had that there";
  EXPECT_TRUE(grant->handle->revoke());
  *grant = {};
  before.reset();
  next.reset();
}

/// As the registration threads of a server do it, while the worker uses the endpoint.
TEST_F(SessionRailsTest, SeveralThreadsRenewTheGrantsOfOneSession) {
  auto endpoint = connect();
  ASSERT_OK(add_lane(*endpoint, 0, 0));
  const MemoryStretch small{memory_.data(), 2048};  // there is room for all on both devices
  const GrantRequest asked{
      .extents = {&small, 1}, .rights = Rights::kAll, .atomic_domain = "fake0"};
  std::array<std::optional<Grant>, 2> grants;
  for (auto& each : grants) each.emplace(endpoint->grant(asked).value());
  ASSERT_OK(add_lane(*endpoint, 1, 1));
  auto* const renewal = endpoint->use_lane_keys();
  std::vector<std::thread> threads;
  for (auto& each : grants)
    threads.emplace_back([renewal, &each] { EXPECT_TRUE(renewal->renew(*each).ok()); });
  auto another = endpoint->grant(asked);
  for (std::thread& thread : threads) thread.join();
  ASSERT_OK(another);
  for (auto& each : grants) {
    EXPECT_FALSE(renewal->registers_again(*each));
    EXPECT_NE(each->lane_keys.keys[1], 0U);
    EXPECT_TRUE(each->handle->revoke());
    each.reset();
  }
  *another = {};
  endpoint.reset();
}

TEST_F(SessionRailsTest, RevocationSaysWhatARegistrationThatFailedHasLeft) {
  SessionRails rails;
  const auto place = rails.place_on(device(0), budgets_of(0)).value();
  const std::array stretches{stretch_, stretch_};
  RailGrant grant{{.extents = stretches, .rights = Rights::kAll}, rails.next_move()};
  fake_.fail("reg_mr_iova", 2, ENOMEM);
  EXPECT_FALSE(grant.register_on(place));
  EXPECT_TRUE(grant.revoke()) << "the device has taken back the first one";
  fake_.fail("reg_mr_iova", 2, ENOMEM);
  fake_.fail("dereg_mr");
  EXPECT_FALSE(grant.register_on(place));
  EXPECT_EQ(registrations_->used(), 1U) << "the device keeps it";
  EXPECT_CODE(grant.revoke(), kProvider);
  EXPECT_TRUE(grant.revoke());
}

TEST_F(SessionRailsTest, SessionEndsWhenARefusedGrantLeavesAKey) {
  auto endpoint = connect();
  ASSERT_OK(add_lane(*endpoint, 0, 0));
  const std::array stretches{stretch_, stretch_};
  fake_.fail("reg_mr_iova", 2, ENOMEM);
  fake_.fail("dereg_mr");
  EXPECT_FALSE(endpoint->grant({.extents = stretches, .rights = Rights::kAll}));
  EXPECT_CODE(add_lane(*endpoint, 1, 0), kConnectionLost);
  auto next = connect();
  EXPECT_CODE(next->take_over(*endpoint), kUnsupported);
  endpoint.reset();
  next.reset();
}

TEST_F(SessionRailsTest, EndOfTheChannelIsKeptBackForTheLanes) {
  auto endpoint = connect();
  ASSERT_OK(add_lane(*endpoint, 0, 0));
  ASSERT_OK(add_lane(*endpoint, 1, 1));
  // A receive is flushed: that of the channel, which is polled first.
  ibv_wc flushed{};
  flushed.status = IBV_WC_WR_FLUSH_ERR;
  fake_.completions.push_back(flushed);
  const auto kept_back = endpoint->receive();
  ASSERT_TRUE(kept_back.ok()) << kept_back.error();
  EXPECT_FALSE(kept_back->has_value());
  const Deadline until = Clock::now() + std::chrono::seconds{10};
  while (endpoint->receive() && Clock::now() < until) {
  }
  EXPECT_CODE(endpoint->receive(), kConnectionLost);
  endpoint.reset();
}

/// As of a completion queue that has failed: it tells nothing by itself.
TEST_F(SessionRailsTest, FailureThatADeviceTellsByAnEventAloneEndsTheSession) {
  auto endpoint = connect();
  ASSERT_OK(add_lane(*endpoint, 0, 0));
  EXPECT_FALSE(endpoint->hit_by({.device = "fake0"})) << "it is kept back";
  EXPECT_EQ(fake_.uses("disconnect"), 1) << "the client is told by the end of the channel";
  const auto kept_back = endpoint->receive();
  ASSERT_TRUE(kept_back.ok()) << kept_back.error();
  EXPECT_FALSE(kept_back->has_value());
  const Deadline until = Clock::now() + std::chrono::seconds{10};
  while (endpoint->receive() && Clock::now() < until) {
  }
  EXPECT_CODE(endpoint->receive(), kConnectionLost);
  endpoint.reset();
}

}  // namespace
}  // namespace remora::transport::rdma
