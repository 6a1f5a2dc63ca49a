#include <sstream>

#include "fake_verbs.h"

namespace remora::test {
namespace {

using verbs::QueuePairAttributes;
using verbs::QueuePairState;

TEST(QueuePairAttributes, GoThroughVerbsUnchanged) {
  QueuePairAttributes attributes;
  attributes.state = QueuePairState::kRtr;
  attributes.mtu = IBV_MTU_2048;
  attributes.destination_qp = 17;
  attributes.receive_psn = 5;
  attributes.responder_depth = 3;
  attributes.path = verbs::AddressVector{.port = 1, .route = verbs::GlobalRoute{.source_index = 2}};
  const auto [raw, mask] = attributes.raw();
  EXPECT_EQ(mask, IBV_QP_STATE | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                      IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_AV);
  EXPECT_EQ(raw.ah_attr.grh.sgid_index, 2);
  const auto back = QueuePairAttributes::from(raw, mask);
  EXPECT_EQ(back.state, QueuePairState::kRtr);
  EXPECT_EQ(back.destination_qp, 17U);
  EXPECT_EQ(back.path, attributes.path);
  EXPECT_FALSE(back.timeout.has_value());
  std::ostringstream out;
  out << back;
  EXPECT_EQ(out.str(),
            "state RTR path [port 1 lid 0 sl 0 from gid 2 to :: hops 64 class 0 flow 0] mtu 2048 "
            "destination_qp 17 receive_psn 5 responder_depth 3");
}

TEST(CheckStep, RcWantsItsPathAndDepths) {
  const auto check =
      verbs::check_step(IBV_QPT_RC, QueuePairState::kInit, QueuePairState::kRtr, IBV_QP_STATE);
  EXPECT_EQ(to_string(check),
            "missing path, mtu, receive_psn, min_rnr_timer, responder_depth, destination_qp");
}

TEST(CheckStep, DatagramsWantTheirKey) {
  const int given = IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS;
  const auto check =
      verbs::check_step(IBV_QPT_UD, QueuePairState::kReset, QueuePairState::kInit, given);
  EXPECT_EQ(check.missing, IBV_QP_QKEY);
  EXPECT_EQ(check.surplus, IBV_QP_ACCESS_FLAGS);
  EXPECT_FALSE(check.ok());
}

TEST(CheckStep, ErrorAndResetAreAlwaysPossible) {
  for (const auto from : {QueuePairState::kReset, QueuePairState::kRts, QueuePairState::kSqe}) {
    EXPECT_TRUE(verbs::check_step(IBV_QPT_RC, from, QueuePairState::kErr, IBV_QP_STATE).ok());
    EXPECT_TRUE(verbs::check_step(IBV_QPT_UC, from, QueuePairState::kReset, IBV_QP_STATE).ok());
  }
  EXPECT_FALSE(
      verbs::check_step(IBV_QPT_RC, QueuePairState::kErr, QueuePairState::kRts, 0).possible);
  EXPECT_TRUE(
      verbs::check_step(IBV_QPT_UD, QueuePairState::kSqe, QueuePairState::kRts, 0).possible);
  EXPECT_FALSE(
      verbs::check_step(IBV_QPT_RC, QueuePairState::kSqe, QueuePairState::kRts, 0).possible);
}

TEST(DatagramEndpoint, GoesOverTheWire) {
  verbs::DatagramEndpoint endpoint;
  endpoint.qp_number = 0x123456;
  endpoint.qkey = 0xdeadbeef;
  endpoint.gid.bytes[15] = 9;
  auto wire = endpoint.to_wire();
  EXPECT_EQ(verbs::DatagramEndpoint::from_wire(wire).value(), endpoint);
  EXPECT_CODE(verbs::Endpoint::from_wire(wire), kProtocol);  // not mistaken for the other kind
  wire[27] = std::byte{0};
  EXPECT_CODE(verbs::DatagramEndpoint::from_wire(wire), kProtocol);
  EXPECT_CODE(verbs::DatagramEndpoint::from_wire(std::span{wire}.first(20)), kProtocol);
}

}  // namespace
}  // namespace remora::test
