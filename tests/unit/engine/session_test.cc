#include <array>
#include <chrono>
#include <gtest/gtest.h>
#include <memory>

#include "client/engine_core.h"
#include "fake_lane.h"
#include "fake_server.h"

namespace remora::detail {
namespace {

/// A session over a lane that keeps `initiator_depth` reads and atomics in flight.
std::shared_ptr<SessionCore> session_with(std::uint32_t initiator_depth,
                                          std::span<std::byte> memory) {
  auto lane = std::make_unique<transport::FakeLane>();
  lane->set_initiator_depth(initiator_depth);
  transport::FakeServerEndpoint::Offer offer{
      .lane = std::move(lane), .domain = nullptr, .direct = std::nullopt, .memory = memory};
  return SessionCore::start(EngineCore::create({}).value(),
                            std::make_unique<transport::FakeServerEndpoint>(std::move(offer)),
                            deadline_after(std::chrono::seconds{10}))
      .value();
}

TEST(SessionOpen, ReadsOverDevicesThatKeepNoneInFlightAreUnsupported) {
  alignas(64) std::array<std::byte, 256> memory{};
  const auto session = session_with(0, memory);
  const Deadline deadline = deadline_after(std::chrono::seconds{10});
  for (const Rights rights : {Rights::kRead, Rights::kAtomic, Rights::kAll}) {
    const auto refused = session->open("r", rights, "fake", deadline);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code(), Code::kUnsupported) << refused.error();
  }
  EXPECT_TRUE(session->open("r", Rights::kWrite, "fake", deadline));
}

TEST(SessionOpen, OneReadInFlightIsEnough) {
  alignas(64) std::array<std::byte, 256> memory{};
  const auto session = session_with(1, memory);
  EXPECT_TRUE(session->open("r", Rights::kAll, "fake", deadline_after(std::chrono::seconds{10})));
}

}  // namespace
}  // namespace remora::detail
