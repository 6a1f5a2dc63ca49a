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

TEST(Introduction, EveryOtherHeaderIsRefused) {
  const auto wire = Introduction{}.to_wire();
  for (std::size_t length = 0; length < wire.size(); ++length)
    EXPECT_FALSE(Introduction::from_wire(std::span{wire}.first(length)));
  for (std::size_t at = 0; at < 8; ++at) {
    auto wrong = wire;
    wrong[at] ^= std::byte{0x80};
    EXPECT_FALSE(Introduction::from_wire(wrong)) << at;
  }
}

}  // namespace
}  // namespace remora::transport::rdma
