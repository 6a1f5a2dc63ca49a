/// The addresses of a device, and connecting from a device of choice.

#include "transport/rdma/device_addresses.h"

#include <chrono>
#include <gtest/gtest.h>
#include <string>

#include "base/clock.h"
#include "unit/verbs/fake_verbs.h"

namespace remora::transport::rdma {
namespace {

class DeviceAddressesTest : public test::FakeTest {
 protected:
  [[nodiscard]] std::string addresses() {
    std::string text;
    for (const verbs::Address& each : addresses_of(open()))
      text += (text.empty() ? "" : " ") + each.host();
    return text;
  }
  static Deadline later() { return Clock::now() + std::chrono::seconds{10}; }
  static verbs::Address peer() { return verbs::Address::parse("10.0.0.9", 7471).value(); }
};

TEST_F(DeviceAddressesTest, AreThoseOfItsRoceGidsThatRouteEachOnce) {
  EXPECT_EQ(addresses(), "10.0.0.1") << "not the link-local one";
  fake_.gids = {fake_.gid(0, 1, "fe80::1"), fake_.gid(1, 1, "::ffff:10.0.0.1"),
                fake_.gid(2, 1, "::ffff:10.0.0.1"), fake_.gid(3, 1, "2001:db8::7")};
  EXPECT_EQ(addresses(), "10.0.0.1 2001:db8::7");
}

TEST_F(DeviceAddressesTest, AreNoneWithoutAnActiveEthernetPort) {
  fake_.port.state = IBV_PORT_DOWN;
  EXPECT_EQ(addresses(), "");
  fake_.port.state = IBV_PORT_ACTIVE;
  fake_.port.link_layer = IBV_LINK_LAYER_INFINIBAND;
  EXPECT_EQ(addresses(), "") << "a GID is no IP address there";
}

TEST_F(DeviceAddressesTest, DevicesAreFoundByName) {
  fake_.others.emplace_back("fake1");
  EXPECT_EQ(find_device("fake1", fake_.provider()).value().name(), "fake1");
  EXPECT_CODE(find_device("fake2", fake_.provider()), kNotFound);
}

TEST_F(DeviceAddressesTest, RouteOverTheDeviceIsTakenAsItIs) {
  fake_.others.emplace_back("fake1");
  fake_.route = &fake_.others.front().cm_context;
  const auto routed = resolve_over("fake1", peer(), later(), {}, fake_.provider());
  ASSERT_OK(routed);
  EXPECT_EQ(routed->device().name(), "fake1");
  EXPECT_EQ(fake_.uses("resolve_addr"), 1);
  ASSERT_OK(resolve_over("", peer(), later(), {}, fake_.provider()));
}

TEST_F(DeviceAddressesTest, OtherwiseEachAddressOfTheDeviceIsTried) {
  fake_.others.emplace_back("fake1");
  const auto routed = resolve_over("fake1", peer(), later(), {}, fake_.provider());
  EXPECT_CODE(routed, kUnreachable);
  EXPECT_EQ(fake_.uses("resolve_addr"), 2) << "by the route, and from 10.0.0.1";
}

/// The host keeps the route over a port whose link is down.
TEST_F(DeviceAddressesTest, RouteThatIsSilentLeavesTimeForTheAddressesOfTheDevice) {
  fake_.address_time_outs = 1;
  ASSERT_OK(resolve_over("fake0", peer(), later(), {}, fake_.provider()));
  EXPECT_LE(fake_.resolve_longest_ms, 300);
}

TEST_F(DeviceAddressesTest, DeviceThatTheHostDoesNotHaveIsNotFound) {
  EXPECT_CODE(resolve_over("fake7", peer(), later(), {}, fake_.provider()), kNotFound);
}

}  // namespace
}  // namespace remora::transport::rdma
