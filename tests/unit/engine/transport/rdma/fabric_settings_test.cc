/// Settings of the fabric on queue pairs, on a port that has what it has.

#include "transport/rdma/fabric_settings.h"

#include <gtest/gtest.h>

#include "unit/verbs/fake_verbs.h"

namespace remora::transport::rdma {
namespace {

using config::RdmaSettings;

class RdmaFabricTest : public test::FakeTest {
 protected:
  [[nodiscard]] Result<verbs::QueuePairOptions> applied(const RdmaSettings& settings) {
    const test::FakeRig rig{open()};
    auto builder = rig.builder();
    if (const Status status = apply(settings, rig.device, 1, builder); !status)
      return status.error();
    return builder.options();
  }
};

TEST_F(RdmaFabricTest, WithoutSettingsTheRouteDecidesAndAFlapOfThreeSecondsIsSurvived) {
  const auto options = applied({}).value();
  EXPECT_FALSE(options.traffic_class || options.service_level || options.pkey_index ||
               options.gid_index || options.mtu || options.timeout);
  EXPECT_EQ(options.retry_count, 7);
  // A request is sent again after 4.096 us * 2^n at the earliest, 7 times, and once more waited
  // for.
  EXPECT_GE(4.096e-6 * static_cast<double>(1U << options.timeout_at_least) * 8, 8.0);
  const verbs::ConnectorOptions route = route_options({});
  EXPECT_FALSE(route.ack_timeout || route.traffic_class);
}

TEST_F(RdmaFabricTest, SettingsAreCarriedOver) {
  fake_.gids = {test::FakeVerbs::gid(0, 1, "fe80::1"), test::FakeVerbs::gid(3, 1, "::1")};
  const RdmaSettings settings{106, 3, 0x7fff, 3, 1024, 20, 2, 5};
  const auto options = applied(settings).value();
  EXPECT_EQ(options.traffic_class, 106);
  EXPECT_EQ(options.service_level, 3);
  EXPECT_EQ(options.pkey_index, 0) << "the row of 0xffff, which is the same partition";
  EXPECT_EQ(options.gid_index, 3U);
  EXPECT_EQ(options.mtu, IBV_MTU_1024);
  EXPECT_EQ(options.timeout, 20);
  EXPECT_EQ(options.retry_count, 2);
  EXPECT_EQ(options.rnr_retry_count, 5);
  const verbs::ConnectorOptions route = route_options(settings);
  EXPECT_EQ(route.ack_timeout, 20);
  EXPECT_EQ(route.traffic_class, 106);
}

TEST_F(RdmaFabricTest, FullMembershipOfAPartitionComesFirst) {
  fake_.pkeys = {0xffff, 0x0001, 0x8001, 0, 0x0002};
  fake_.port.pkey_tbl_len = 5;
  EXPECT_EQ(applied({.pkey = 0x8001}).value().pkey_index, 2) << "row 1 is a limited member";
  EXPECT_EQ(applied({.pkey = 0x0001}).value().pkey_index, 2);
  EXPECT_EQ(applied({.pkey = 0x8002}).value().pkey_index, 4) << "there is no full one";
  EXPECT_EQ(applied({.pkey = 0x7fff}).value().pkey_index, 0);
  EXPECT_FALSE(applied({.pkey = 0x8000})) << "row 3 is empty";
}

TEST_F(RdmaFabricTest, EveryMtuHasItsCode) {
  EXPECT_EQ(applied({.mtu = 256}).value().mtu, IBV_MTU_256);
  EXPECT_EQ(applied({.mtu = 512}).value().mtu, IBV_MTU_512);
  EXPECT_EQ(applied({.mtu = 2048}).value().mtu, IBV_MTU_2048);
  EXPECT_EQ(applied({.mtu = 4096}).value().mtu, IBV_MTU_4096);
}

TEST_F(RdmaFabricTest, WhatThePortDoesNotHaveIsNamed) {
  const auto pkey = applied({.pkey = 0x8001});
  ASSERT_FALSE(pkey);
  EXPECT_EQ(pkey.error().code(), Code::kNotFound);
  EXPECT_EQ(pkey.error().subject(), "pkey=0x8001 on port 1 of fake0, which has 0xffff");
  fake_.gids = {test::FakeVerbs::gid(0, 1, "fe80::1"), test::FakeVerbs::gid(7, 2, "::1")};
  const auto gid = applied({.gid_index = 7});
  ASSERT_FALSE(gid);
  EXPECT_EQ(gid.error().code(), Code::kNotFound);
  EXPECT_EQ(gid.error().subject(), "gid_index=7 on port 1 of fake0, which has 0");
  EXPECT_NE(gid.error().remedy().find("EngineOptions::rdma"), std::string_view::npos);
}

TEST_F(RdmaFabricTest, WhatThePortHasInsteadIsListed) {
  using test::FakeVerbs;
  const auto subject = [&](const RdmaSettings& settings) {
    const auto refused = applied(settings);
    return refused ? std::string{} : std::string{refused.error().subject()};
  };
  fake_.pkeys = {0xffff, 0, 0x8001, 0x8002, 0x8003, 0x0004};
  fake_.port.pkey_tbl_len = 6;
  EXPECT_EQ(subject({.pkey = 0x7abc}),
            "pkey=0x7abc on port 1 of fake0, which has 0xffff, 0x8001, 0x8002 and 2 more");
  fake_.pkeys = {0};
  fake_.port.pkey_tbl_len = 1;
  EXPECT_EQ(subject({.pkey = 0x7abc}), "pkey=0x7abc on port 1 of fake0, which has none");
  fake_.gids.clear();
  EXPECT_EQ(subject({.gid_index = 0}), "gid_index=0 on port 1 of fake0, which has none");
  for (const std::uint32_t row : {5U, 0U, 1U, 2U})
    fake_.gids.push_back(FakeVerbs::gid(row, 1, "::1"));
  EXPECT_EQ(subject({.gid_index = 4}), "gid_index=4 on port 1 of fake0, which has 0-2, 5");
  for (const std::uint32_t row : {16U, 18U, 20U})
    fake_.gids.push_back(FakeVerbs::gid(row, 1, "::1"));
  fake_.port.gid_tbl_len = 32;
  EXPECT_EQ(subject({.gid_index = 255}),
            "gid_index=255 on port 1 of fake0, which has 0-2, 5, 16, 18 and more");
}

TEST_F(RdmaFabricTest, OneActivePortWithTheSettingsIsEnoughForADevice) {
  fake_.attributes.phys_port_cnt = 2;
  fake_.second_port = fake_.port;
  fake_.gids = {test::FakeVerbs::gid(0, 1, "fe80::1"), test::FakeVerbs::gid(7, 2, "::1")};
  const auto device = open();
  EXPECT_TRUE(check_ports({}, device));
  EXPECT_TRUE(check_ports({.gid_index = 0}, device));
  EXPECT_TRUE(check_ports({.pkey = 0xffff, .gid_index = 7}, device));
  const Status none = check_ports({.gid_index = 1}, device);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code(), Code::kNotFound);
  EXPECT_EQ(none.error().subject(), "rdma.gid_index=1 on port 1 of fake0, which has 0");
  fake_.second_port->state = IBV_PORT_DOWN;
  EXPECT_CODE(check_ports({.gid_index = 7}, device), kNotFound);
}

TEST_F(RdmaFabricTest, DeviceThatCannotBeAskedIsAnErrorOfItsOwn) {
  const auto device = open();
  fake_.fail("query_gid_table", 1, EIO);
  EXPECT_CODE(check_ports({.gid_index = 0}, device), kProvider);
}

TEST_F(RdmaFabricTest, SettingsWithoutEffectOverIwarpAreNamed) {
  fake_.device.transport_type = IBV_TRANSPORT_IWARP;
  const auto device = open();
  ASSERT_TRUE(device.is_iwarp());
  EXPECT_EQ(without_effect({.traffic_class = 106}, device, 1), "") << "of a client";
  EXPECT_EQ(without_effect({.traffic_class = 106, .service_level = 3, .timeout = 20}, device, 1),
            "without effect over iWARP: service_level=3, timeout=20");
  EXPECT_EQ(server_half({.traffic_class = 106, .timeout = 20}, 0, device, 1).value(),
            (RdmaSettings{.timeout = 20}));
}

TEST_F(RdmaFabricTest, GidIndexWithoutEffectOnInfiniBandIsNamed) {
  fake_.device.transport_type = IBV_TRANSPORT_IB;
  fake_.port.link_layer = IBV_LINK_LAYER_ETHERNET;
  const auto device = open();
  EXPECT_EQ(without_effect({.traffic_class = 106, .gid_index = 3}, device, 1), "") << "RoCE";
  fake_.port.link_layer = IBV_LINK_LAYER_INFINIBAND;
  EXPECT_EQ(without_effect({.traffic_class = 106}, device, 1), "");
  EXPECT_EQ(without_effect({.traffic_class = 106, .gid_index = 3}, device, 1),
            "without effect where the route has no global header (GRH), as within an InfiniBand "
            "subnet: gid_index=3");
}

TEST_F(RdmaFabricTest, TheServersHalfHasTheMtuOfItsClient) {
  const auto device = open();
  const RdmaSettings open_mtu{.timeout = 20};
  EXPECT_EQ(server_half(open_mtu, 0, device, 1).value().mtu, std::nullopt);
  EXPECT_EQ(server_half(open_mtu, 1024, device, 1).value(),
            (RdmaSettings{.mtu = 1024, .timeout = 20}));
  fake_.port.active_mtu = IBV_MTU_4096;
  const RdmaSettings bounded{.mtu = 1024};
  EXPECT_EQ(server_half(bounded, 512, device, 1).value().mtu, 512);
  EXPECT_EQ(server_half(bounded, 1024, device, 1).value().mtu, 1024);
  for (const std::uint32_t too_much : {2048U, 0U}) {
    const auto half = server_half(bounded, too_much, device, 1);
    ASSERT_FALSE(half) << too_much;
    EXPECT_EQ(half.error().code(), Code::kUnsupported);
    EXPECT_EQ(half.error().subject(), "rdma.mtu of the server; the client needs mtu=1024");
    EXPECT_EQ(half.error().allowed(), 1024U);
  }
  fake_.port.active_mtu = IBV_MTU_1024;
  EXPECT_EQ(server_half(bounded, 0, device, 1).value().mtu, std::nullopt)
      << "the port cannot carry more";
}

}  // namespace
}  // namespace remora::transport::rdma
