#include "transport/rdma/wire.h"

#include <gtest/gtest.h>
#include <vector>

namespace remora::transport::rdma {
namespace {

TEST(Introduction, RoundTripsAlsoWithPadding) {
  const Introduction introduction{
      .purpose = Purpose::kLane,
      .ticket = {.session_id = 0x0123456789abcdef, .secret = 0xfedcba9876543210}};
  const auto wire = introduction.to_wire();
  EXPECT_EQ(wire[8], std::byte{0x01}) << "big-endian";
  std::vector<std::byte> padded{wire.begin(), wire.end()};
  padded.resize(56);
  const auto back = Introduction::from_wire(padded);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->purpose, Purpose::kLane);
  EXPECT_EQ(back->ticket.session_id, introduction.ticket.session_id);
  EXPECT_EQ(back->ticket.secret, introduction.ticket.secret);
  EXPECT_FALSE(back->lane) << "it was not said";
}

TEST(Introduction, LaneIsSaidFromOneAndNoneIsZero) {
  Introduction introduction{.purpose = Purpose::kLane, .ticket = {}};
  EXPECT_EQ(introduction.to_wire()[7], std::byte{0});
  for (std::uint32_t lane = 0; lane < kMaxLanes; ++lane) {
    introduction.lane = lane;
    EXPECT_EQ(introduction.to_wire()[7], static_cast<std::byte>(lane + 1));
    EXPECT_EQ(Introduction::from_wire(introduction.to_wire()).value().lane, lane);
  }
  introduction.lane = kMaxLanes;
  EXPECT_FALSE(Introduction::from_wire(introduction.to_wire())) << "there are no more";
  introduction.lane = 0;
  introduction.purpose = Purpose::kControl;
  EXPECT_FALSE(Introduction::from_wire(introduction.to_wire())) << "a control channel is none";
}

TEST(Introduction, PathMtuIsSaidOrNot) {
  for (const std::uint32_t mtu_bytes : {0U, 256U, 512U, 1024U, 2048U, 4096U}) {
    const auto wire = Introduction{.mtu_bytes = mtu_bytes}.to_wire();
    EXPECT_EQ(Introduction::from_wire(wire).value().mtu_bytes, mtu_bytes);
  }
  auto wire = Introduction{.mtu_bytes = 4096}.to_wire();
  EXPECT_EQ(wire[24], std::byte{5}) << "as verbs count them";
  EXPECT_EQ(Introduction::from_wire(std::span{wire}.first(24)).value().mtu_bytes, 0U)
      << "an older client says nothing";
  wire[24] = std::byte{6};
  EXPECT_FALSE(Introduction::from_wire(wire));
}

TEST(Introduction, EveryOtherHeaderIsRefused) {
  const auto wire = Introduction{}.to_wire();
  for (std::size_t length = 0; length < 24; ++length)
    EXPECT_FALSE(Introduction::from_wire(std::span{wire}.first(length)));
  for (std::size_t at = 0; at < 8; ++at) {
    auto wrong = wire;
    wrong[at] ^= std::byte{0x80};
    EXPECT_FALSE(Introduction::from_wire(wrong)) << at;
  }
}

}  // namespace
}  // namespace remora::transport::rdma
