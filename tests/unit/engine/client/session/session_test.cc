#include <array>
#include <chrono>
#include <gtest/gtest.h>
#include <memory>
#include <thread>

#include <remora/metrics/registry.h>

#include "client/engine/engine_core.h"
#include "client/region/region_grant.h"
#include "client/session/session_core.h"
#include "support/eventually.h"
#include "unit/engine/fake_lane.h"
#include "unit/engine/fake_server.h"

namespace remora::detail {
namespace {

/// A session over a lane that keeps `initiator_depth` reads and atomics in flight.
std::shared_ptr<SessionCore> session_with(std::uint32_t initiator_depth,
                                          std::span<std::byte> memory) {
  auto lane = std::make_unique<transport::FakeLane>();
  lane->set_initiator_depth(initiator_depth);
  transport::FakeServerEndpoint::Offer offer{
      .lane = std::move(lane), .domain = nullptr, .direct = std::nullopt, .memory = memory};
  return transport::start_fake_session(EngineCore::create({}).value(), std::move(offer));
}

TEST(SessionOpen, ReadsOverDevicesThatKeepNoneInFlightAreUnsupported) {
  alignas(64) std::array<std::byte, 256> memory{};
  const auto session = session_with(0, memory);
  const Deadline deadline = deadline_after(std::chrono::seconds{10});
  for (const Rights rights : {Rights::kRead, Rights::kAtomic, Rights::kAll}) {
    const auto refused = RegionGrant::open(session, "r", rights, "fake", deadline);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code(), Code::kUnsupported) << refused.error();
  }
  EXPECT_TRUE(RegionGrant::open(session, "r", Rights::kWrite, "fake", deadline));
}

TEST(SessionOpen, OneReadInFlightIsEnough) {
  alignas(64) std::array<std::byte, 256> memory{};
  const auto session = session_with(1, memory);
  EXPECT_TRUE(RegionGrant::open(session, "r", Rights::kAll, "fake",
                                deadline_after(std::chrono::seconds{10})));
}

/// Sessions that began and that ended, by what is counted.
class SessionSeries : public ::testing::Test {
 protected:
  void SetUp() override {
    EngineOptions options;
    options.spin = std::chrono::nanoseconds{0};
    options.lanes = 2;
    options.registry = registry_;
    transport::FakeServerEndpoint::Offer offer{};
    offer.memory = memory_;
    for (auto& lane : lanes_) {
      auto made = std::make_unique<transport::FakeLane>();
      lane = made.get();
      offer.more_lanes.push_back(std::move(made));
    }
    session_ = transport::start_fake_session(EngineCore::create(options).value(), std::move(offer));
  }
  double ended(const char* reason) {
    return registry_
        ->value("remora_client_sessions_ended_total", {{"transport", "rdma"}, {"reason", reason}})
        .value();
  }
  double all_ended() { return registry_->sum("remora_client_sessions_ended_total").value(); }

  alignas(64) std::array<std::byte, 4096> memory_{};
  std::array<std::byte, 64> local_{};
  std::shared_ptr<metrics::Registry> registry_ = metrics::Registry::create().value();
  std::array<transport::FakeLane*, 2> lanes_{};
  std::shared_ptr<SessionCore> session_;
};

TEST_F(SessionSeries, ClosedIsCountedOnce) {
  EXPECT_EQ(registry_->sum("remora_client_sessions_total").value(), 1);
  EXPECT_EQ(all_ended(), 0);
  session_.reset();  // a thread of the engine's may be at it, and hold it a moment longer
  EXPECT_TRUE(test::eventually([&] { return all_ended() != 0; }));
  EXPECT_EQ(ended("closed"), 1);
  EXPECT_EQ(all_ended(), 1);
}

TEST_F(SessionSeries, LostIsCountedOnceUnderItsReason) {
  session_->fail(Reason::kPeerGone);
  session_->fail(Reason::kLaneBroken);
  session_.reset();
  EXPECT_EQ(ended("peer_gone"), 1);
  EXPECT_EQ(all_ended(), 1);
}

TEST_F(SessionSeries, LaneThatEndsEndsTheSessionUnderThatName) {
  session_->fail(Reason::kLaneBroken);
  EXPECT_EQ(ended("lane_broken"), 1);
}

TEST_F(SessionSeries, DeadlineThatBreaksALaneIsTheReasonAndTheOtherLanesHaveVictims) {
  // One operation on each lane: what one thread does synchronously is on one of them.
  const Region region{RegionGrant::open(session_, "r", Rights::kAll, "fake",
                                        deadline_after(std::chrono::seconds{10}))
                          .value()};
  std::array<Queue, 2> queues{region.queue({.depth = 4}).value(),
                              region.queue({.depth = 4}).value()};
  for (Queue& queue : queues) queue.write(ByteOffset{0}, std::span{local_}.first(8));
  for (Queue& queue : queues) ASSERT_TRUE(queue.submit());
  const auto late =
      region.write(ByteOffset{64}, std::span{local_}.first(8), std::chrono::seconds{1});
  EXPECT_EQ(late.error().code(), Code::kIndeterminate);
  for (Queue& queue : queues) EXPECT_EQ(queue.wait(1).size(), 1U);
  EXPECT_EQ(ended("deadline"), 1);
  EXPECT_EQ(registry_
                ->value("remora_client_lane_victims_total",
                        {{"transport", "rdma"}, {"cause", "deadline"}})
                .value(),
            2)
      << "one on each lane";
}

/// A registry that is nearly full takes what there is room for, and the session works.
TEST(SessionSeriesBudget, FullRegistryRefusesNoSession) {
  alignas(64) std::array<std::byte, 256> memory{};
  for (const std::size_t most : {1U, 40U, 90U}) {
    EngineOptions options;
    options.registry = metrics::Registry::create({.series_max = most}).value();
    transport::FakeServerEndpoint::Offer offer{};
    offer.memory = memory;
    offer.direct = transport::DirectPath{};
    const Region region =
        transport::open_fake_region(EngineCore::create(options).value(), std::move(offer));
    std::array<std::byte, 64> bytes{};
    EXPECT_TRUE(region.read(ByteOffset{0}, bytes));
    EXPECT_LE(options.registry->series_count(), most);
  }
}

}  // namespace
}  // namespace remora::detail
