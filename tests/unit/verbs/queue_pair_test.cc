#include "fake_verbs.h"

namespace remora::test {
namespace {

using verbs::Access;

class BuildQueuePair : public FakeTest {
 protected:
  void SetUp() override { rig_.emplace(open()); }
  void TearDown() override {
    rig_.reset();
    FakeTest::TearDown();
  }
  std::optional<FakeRig> rig_;
};

TEST_F(BuildQueuePair, LimitsOfTheDeviceAreTold) {
  const auto over = [&](auto setter, std::uint64_t allowed) {
    auto builder = rig_->builder();
    setter(builder);
    const auto pair = builder.build();
    ASSERT_FALSE(pair.ok());
    EXPECT_EQ(pair.error().code(), Code::kLimitExceeded);
    EXPECT_EQ(pair.error().allowed(), allowed);
  };
  over([](auto& b) { b.send_depth(129); }, 128);
  over([](auto& b) { b.receive_depth(129); }, 128);
  over([](auto& b) { b.send_sge(5); }, 4);
  over([](auto& b) { b.receive_sge(5); }, 4);
  over([](auto& b) { b.initiator_depth(17); }, 16);
  over([](auto& b) { b.responder_depth(17); }, 16);
}

TEST_F(BuildQueuePair, ValuesOutsideTheirRangeAreInvalid) {
  const auto bad = [&](auto setter) {
    auto builder = rig_->builder();
    setter(builder);
    EXPECT_CODE(builder.build(), kInvalidArgument);
  };
  bad([](auto& b) { b.timeout(32); });
  bad([](auto& b) { b.retry_count(8); });
  bad([](auto& b) { b.rnr_retry_count(8); });
  bad([](auto& b) { b.min_rnr_timer(32); });
  bad([](auto& b) { b.psn(1U << 24); });
  bad([](auto& b) { b.service_level(16); });
  bad([](auto& b) { b.timeout_at_least(32); });
  bad([](auto& b) { b.gid_index(256); });
  bad([](auto& b) { b.flow_label(1U << 20); });
  bad([](auto& b) { b.port(2); });
}

TEST_F(BuildQueuePair, PartsOfDifferentDevicesAreInvalid) {
  const FakeRig other{open()};
  const verbs::QueuePairBuilder<verbs::Rc> mixed{rig_->domain, other.queue, rig_->queue};
  EXPECT_CODE(mixed.build(), kInvalidArgument);
  const verbs::QueuePairBuilder<verbs::Rc> empty{{}, rig_->queue, rig_->queue};
  EXPECT_CODE(empty.build(), kInvalidArgument);
}

TEST_F(BuildQueuePair, InactivePortIsInvalidAndNamed) {
  fake_.port.state = IBV_PORT_DOWN;
  const auto pair = rig_->builder().build();
  EXPECT_CODE(pair, kInvalidArgument);
  EXPECT_EQ(pair.error().subject(), "fake0 port 1 is down");
}

TEST_F(BuildQueuePair, NoRoutableGidIsNotFound) {
  fake_.gids.resize(1);  // the link-local one
  EXPECT_CODE(rig_->builder().build(), kNotFound);
  EXPECT_CODE(rig_->builder().gid_index(7).build(), kNotFound);
  ASSERT_OK(rig_->builder().gid_index(0).build());  // said explicitly
}

TEST_F(BuildQueuePair, TooMuchInlineNamesTheNumber) {
  fake_.fail("create_qp", 1, EINVAL);
  const auto pair = rig_->builder().inline_bytes(9999).build();
  EXPECT_CODE(pair, kProvider);
  EXPECT_NE(pair.error().subject().find("9999 inline bytes"), std::string::npos);
}

TEST_F(BuildQueuePair, CapabilitiesAreWhatWasGranted) {
  fake_.granted_inline = 220;
  auto pair = rig_->builder().inline_bytes(32).build();
  ASSERT_OK(pair);
  EXPECT_EQ(pair->pair().capabilities().inline_bytes, 220U);
}

TEST_F(BuildQueuePair, DefaultsComeFromDeviceAndPort) {
  const auto prepared = rig_->builder().psn(5).build();
  ASSERT_OK(prepared);
  EXPECT_EQ(prepared->endpoint().psn, 5U);
  EXPECT_EQ(prepared->endpoint().mtu, IBV_MTU_4096);
  EXPECT_EQ(prepared->endpoint().gid.to_string(), "::ffff:10.0.0.1");
  ASSERT_EQ(fake_.modified.size(), 1U);
  const auto rights = static_cast<Access>(fake_.modified[0].first.qp_access_flags);
  EXPECT_TRUE(contains(rights, Access::kRemoteRead | Access::kRemoteWrite | Access::kRemoteAtomic));
}

TEST_F(BuildQueuePair, DeviceWithoutAtomicsGivesNoRightToThem) {
  fake_.attributes.atomic_cap = IBV_ATOMIC_NONE;
  const FakeRig rig{open()};
  ASSERT_OK(rig.builder().build());
  const auto rights = static_cast<Access>(fake_.modified[0].first.qp_access_flags);
  EXPECT_FALSE(contains(rights, Access::kRemoteAtomic));
}

TEST_F(BuildQueuePair, ConnectUsesEveryOption) {
  auto prepared = rig_->builder()
                      .timeout(18)
                      .retry_count(3)
                      .rnr_retry_count(2)
                      .min_rnr_timer(9)
                      .initiator_depth(4)
                      .responder_depth(5)
                      .mtu(IBV_MTU_2048)
                      .hop_limit(3)
                      .service_level(5)
                      .traffic_class(0x68)
                      .flow_label(0xabcde)
                      .pkey_index(6)
                      .psn(0x123456)
                      .gid_index(0)
                      .build();
  ASSERT_OK(prepared);
  verbs::Endpoint peer = prepared->endpoint();
  peer.qp_number = 0x42;
  peer.psn = 0x99;
  peer.mtu = IBV_MTU_1024;
  const auto pair = std::move(*prepared).connect(peer);
  ASSERT_OK(pair);
  ASSERT_EQ(fake_.modified.size(), 3U);
  EXPECT_EQ(fake_.modified[0].first.pkey_index, 6);
  const ibv_qp_attr& receive = fake_.modified[1].first;
  EXPECT_EQ(receive.path_mtu, IBV_MTU_1024);
  EXPECT_EQ(receive.dest_qp_num, 0x42U);
  EXPECT_EQ(receive.rq_psn, 0x99U);
  EXPECT_EQ(receive.min_rnr_timer, 9);
  EXPECT_EQ(receive.max_dest_rd_atomic, 5);
  EXPECT_EQ(receive.ah_attr.grh.sgid_index, 0);
  EXPECT_EQ(receive.ah_attr.grh.hop_limit, 3);
  EXPECT_EQ(receive.ah_attr.sl, 5);
  EXPECT_EQ(receive.ah_attr.grh.traffic_class, 0x68);
  EXPECT_EQ(receive.ah_attr.grh.flow_label, 0xabcdeU);
  const ibv_qp_attr& send = fake_.modified[2].first;
  EXPECT_EQ(send.timeout, 18);
  EXPECT_EQ(send.retry_cnt, 3);
  EXPECT_EQ(send.rnr_retry, 2);
  EXPECT_EQ(send.max_rd_atomic, 4);
  EXPECT_EQ(send.sq_psn, 0x123456U);
  EXPECT_EQ(pair->query_state().value(), verbs::QueuePairState::kRts);
}

TEST_F(BuildQueuePair, ExplicitPortIsUsedThroughout) {
  fake_.attributes.phys_port_cnt = 2;
  fake_.second_port = fake_.port;
  fake_.second_port->active_mtu = IBV_MTU_1024;
  fake_.gids.push_back(FakeVerbs::gid(3, 2, "::ffff:10.0.1.1"));
  fake_.port.state = IBV_PORT_DOWN;
  const FakeRig rig{open()};
  EXPECT_CODE(rig.builder().build(), kInvalidArgument);  // port 1
  auto prepared = rig.builder().port(2).build();
  ASSERT_OK(prepared);
  EXPECT_EQ(prepared->endpoint().gid.to_string(), "::ffff:10.0.1.1");
  EXPECT_EQ(prepared->endpoint().mtu, IBV_MTU_1024);
  EXPECT_EQ(prepared->source().port, 2);
  const auto peer = prepared->endpoint();
  ASSERT_OK(std::move(*prepared).connect(peer));
  ASSERT_EQ(fake_.modified.size(), 3U);
  EXPECT_EQ(fake_.modified[0].first.port_num, 2);
  EXPECT_EQ(fake_.modified[1].first.ah_attr.port_num, 2);
  EXPECT_EQ(fake_.modified[1].first.ah_attr.grh.sgid_index, 3);
  EXPECT_CODE(rig.builder().port(2).gid_index(1).build(), kNotFound);  // that one is of port 1
}

TEST_F(BuildQueuePair, CreationAsksForEveryOption) {
  int tag = 0;
  ASSERT_OK(rig_->builder().build());
  ASSERT_OK(rig_->builder()
                .signal_all(true)
                .context(&tag)
                .send_depth(17)
                .receive_depth(18)
                .send_sge(3)
                .receive_sge(4)
                .inline_bytes(19)
                .build());
  ASSERT_EQ(fake_.pairs.size(), 2U);
  EXPECT_EQ(fake_.pairs[0].sq_sig_all, 0);
  const ibv_qp_init_attr& asked = fake_.pairs[1];
  EXPECT_EQ(asked.sq_sig_all, 1);
  EXPECT_EQ(asked.qp_context, &tag);
  EXPECT_EQ(asked.qp_type, IBV_QPT_RC);
  EXPECT_EQ(asked.cap.max_send_wr, 17U);
  EXPECT_EQ(asked.cap.max_recv_wr, 18U);
  EXPECT_EQ(asked.cap.max_send_sge, 3U);
  EXPECT_EQ(asked.cap.max_recv_sge, 4U);
  EXPECT_EQ(asked.cap.max_inline_data, 19U);
}

TEST_F(BuildQueuePair, EndpointOutOfRangeIsInvalid) {
  auto prepared = rig_->builder().build().value();
  verbs::Endpoint peer = prepared.endpoint();
  peer.qp_number = 1U << 24;
  EXPECT_CODE(std::move(prepared).connect(peer), kInvalidArgument);
}

TEST_F(BuildQueuePair, PeerWithoutARouteIsUnreachableWithBothGids) {
  auto prepared = rig_->builder().build().value();
  const auto peer = prepared.endpoint();
  fake_.fail("modify_qp", 1, ETIMEDOUT);
  const auto pair = std::move(prepared).connect(peer);
  EXPECT_CODE(pair, kUnreachable);
  EXPECT_EQ(pair.error().subject(), "::ffff:10.0.0.1 to ::ffff:10.0.0.1");
  EXPECT_EQ(pair.error().reason(), Reason::kNoNeighbour);
  EXPECT_NE(pair.error().message().find("ip neigh"), std::string::npos) << pair.error();
}

TEST_F(BuildQueuePair, MixedGidsAreNamedAsTheReason) {
  auto prepared = rig_->builder().build().value();
  auto peer = prepared.endpoint();
  peer.gid = verbs::Gid{};
  peer.gid.bytes[0] = 0x20;
  fake_.fail("modify_qp", 1, EINVAL);
  const auto pair = std::move(prepared).connect(peer);
  EXPECT_CODE(pair, kUnreachable);
  EXPECT_EQ(pair.error().reason(), Reason::kGidFamily);
  EXPECT_EQ(pair.error().subject(), "::ffff:10.0.0.1 to 2000::");
}

TEST_F(BuildQueuePair, FailedStepNamesIt) {
  for (const auto& [nth, state] : {std::pair{1, "to RTR"}, std::pair{2, "to RTS"}}) {
    auto prepared = rig_->builder().build().value();
    const auto peer = prepared.endpoint();
    fake_.fail("modify_qp", nth, EINVAL);
    const auto pair = std::move(prepared).connect(peer);
    EXPECT_CODE(pair, kProvider);
    EXPECT_EQ(pair.error().subject(), state);
  }
}

TEST_F(BuildQueuePair, QueryAndErrorFailuresAreKept) {
  const auto pair = rig_->connected();
  fake_.fail("query_qp", 1, EIO);
  EXPECT_CODE(pair.query_state(), kProvider);
  fake_.fail("modify_qp", 1, EIO);
  EXPECT_CODE(pair.to_error(), kProvider);
  ASSERT_OK(pair.to_error());
  EXPECT_EQ(pair.query_state().value(), verbs::QueuePairState::kErr);
}

TEST_F(BuildQueuePair, RawPostsGoThroughTheTable) {
  const auto pair = rig_->connected();
  ibv_send_wr send{};
  ibv_send_wr* bad_send = nullptr;
  EXPECT_EQ(pair.post_send(&send, &bad_send), 0);
  ibv_recv_wr receive{};
  ibv_recv_wr* bad_receive = nullptr;
  EXPECT_EQ(pair.post_receive(&receive, &bad_receive), 0);
  EXPECT_EQ(fake_.uses("post_send"), 1);
  EXPECT_EQ(fake_.uses("post_recv"), 1);
}

TEST_F(BuildQueuePair, ManualBringUpGoesStateByState) {
  const auto pair = rig_->builder().create();
  ASSERT_OK(pair);
  EXPECT_EQ(pair->query_state().value(), verbs::QueuePairState::kReset);
  verbs::QueuePairAttributes step;
  step.state = verbs::QueuePairState::kInit;
  step.port = 1;
  step.pkey_index = 0;
  step.access = Access::kRemoteRead;
  ASSERT_OK(pair->modify(step));
  EXPECT_EQ(fake_.modified.back().second,
            IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS);
  EXPECT_EQ(pair->query()->state, verbs::QueuePairState::kInit);
}

TEST_F(BuildQueuePair, RefusedStepNamesWhatIsMissingAndSurplus) {
  const auto pair = rig_->builder().create().value();
  verbs::QueuePairAttributes step;
  step.state = verbs::QueuePairState::kInit;
  step.port = 1;
  step.qkey = 5;
  fake_.fail("modify_qp", 1, EINVAL);
  const auto refused = pair.modify(step);
  EXPECT_CODE(refused, kProvider);
  EXPECT_EQ(refused.error().subject(), "RESET to INIT: missing access, pkey_index; surplus qkey");
  step.state = verbs::QueuePairState::kRts;
  fake_.fail("modify_qp", 1, EINVAL);
  EXPECT_EQ(error_of(pair.modify(step)).subject(), "RESET to RTS: no such step");
  fake_.fail("modify_qp", 1, EINVAL);
  fake_.fail("query_qp", 1, EIO);  // then it cannot be told
  EXPECT_EQ(error_of(pair.modify(step)).subject(), "to RTS");
}

TEST_F(BuildQueuePair, UnreliableConnectionHasNoReliableAttributes) {
  auto prepared =
      verbs::QueuePairBuilder<verbs::Uc>{rig_->domain, rig_->queue, rig_->queue}.build();
  ASSERT_OK(prepared);
  const auto peer = prepared->endpoint();
  ASSERT_OK(std::move(*prepared).connect(peer));
  ASSERT_EQ(fake_.modified.size(), 3U);
  const auto step = [&](std::size_t i, verbs::QueuePairState from, verbs::QueuePairState to) {
    EXPECT_TRUE(verbs::check_step(IBV_QPT_UC, from, to, fake_.modified[i].second).ok());
  };
  step(0, verbs::QueuePairState::kReset, verbs::QueuePairState::kInit);
  step(1, verbs::QueuePairState::kInit, verbs::QueuePairState::kRtr);
  step(2, verbs::QueuePairState::kRtr, verbs::QueuePairState::kRts);
}

TEST_F(BuildQueuePair, DatagramsAreActivatedNotConnected) {
  auto prepared = verbs::QueuePairBuilder<verbs::Ud>{rig_->domain, rig_->queue, rig_->queue}
                      .qkey(0x1234)
                      .build();
  ASSERT_OK(prepared);
  EXPECT_EQ(prepared->endpoint().qkey, 0x1234U);
  EXPECT_EQ(prepared->endpoint().qp_number, 0x77U);
  EXPECT_EQ(prepared->source().route->source_index, 1);
  const auto pair = std::move(*prepared).activate();
  ASSERT_OK(pair);
  EXPECT_EQ(pair->query_state().value(), verbs::QueuePairState::kRts);
  for (const auto& [attributes, mask] : fake_.modified) EXPECT_EQ(mask & IBV_QP_AV, 0);
}

TEST_F(BuildQueuePair, EveryStepOfARefusedDatagramPairIsTold) {
  for (int nth = 1; nth <= 3; ++nth) {
    fake_.fail("modify_qp", nth, EIO);
    auto prepared =
        verbs::QueuePairBuilder<verbs::Ud>{rig_->domain, rig_->queue, rig_->queue}.build();
    if (nth == 1) {
      EXPECT_CODE(prepared, kProvider);
    } else {
      EXPECT_CODE(std::move(*prepared).activate(), kProvider);
    }
  }
}

}  // namespace
}  // namespace remora::test
