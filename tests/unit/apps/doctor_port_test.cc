// The words of the doctor on ports, GIDs and namespaces.

#include "doctor_machine.h"

namespace remora::apps::doctor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kLinkLocal = "fe80:0000:0000:0000:5054:00ff:fe12:3456";
constexpr const char* kAddress = "0000:0000:0000:0000:0000:ffff:c000:0201";

class DoctorPortTest : public DoctorTest {};

TEST_F(DoctorPortTest, ActivePortIsGreenWithStateLayerAndRate) {
  add_rxe();
  const Finding port = finding_of(check_ports(machine(), {}, devices()), "port");
  EXPECT_EQ(port.colour, Colour::kGreen);
  EXPECT_EQ(port.found, "rxe0 port 1 is ACTIVE (LinkUp), Ethernet, 2.5 Gb/sec (1X SDR)");
}

TEST_F(DoctorPortTest, LinkThatIsDownIsRed) {
  add_rxe("1: DOWN\n");
  add_gid(0, kLinkLocal, "RoCE v2", "eth0");
  const Finding port = finding_of(check_ports(machine(), {}, devices()), "port");
  EXPECT_EQ(port.colour, Colour::kRed);
  EXPECT_THAT(port.found, HasSubstr("rxe0 port 1 is DOWN"));
  EXPECT_EQ(port.why, "nothing is sent or received over a port that is not active");
  EXPECT_EQ(port.command, "sudo ip link set eth0 up && ethtool eth0");
}

TEST_F(DoctorPortTest, SecondPortWithoutACableIsYellow) {
  add_rxe();
  auto seen = devices();
  seen.front().ports.push_back({.number = 2, .state = "DOWN", .link_layer = "Ethernet"});
  const Findings findings = check_ports(machine(), {}, seen);
  ASSERT_EQ(findings.size(), 2U);
  EXPECT_EQ(findings[0].colour, Colour::kGreen);
  EXPECT_EQ(findings[1].colour, Colour::kYellow);
}

TEST_F(DoctorPortTest, InfiniBandWithoutASubnetManagerIsTold) {
  add_rxe("2: INIT\n");
  put("/sys/class/infiniband/rxe0/ports/1/link_layer", "InfiniBand\n");
  const Finding port = finding_of(check_ports(machine(), {}, devices()), "port");
  EXPECT_EQ(port.why, "the link is up, and no subnet manager has set the port up");
  EXPECT_THAT(port.command, HasSubstr("systemctl start opensm"));
}

TEST_F(DoctorPortTest, SmallMtuIsYellow) {
  add_rxe();
  add_gid(1, kAddress, "RoCE v2", "eth0");
  auto seen = devices();
  seen.front().ports.front().active_mtu_bytes = 1024;
  seen.front().ports.front().max_mtu_bytes = 4096;
  const Finding port = finding_of(check_ports(machine(), {}, seen), "port");
  EXPECT_EQ(port.colour, Colour::kYellow);
  EXPECT_THAT(port.found, HasSubstr("MTU 1024 of 4096"));
  EXPECT_THAT(port.command, HasSubstr("sudo ip link set eth0 mtu 9000"));
}

TEST_F(DoctorPortTest, EachGidHasItsReason) {
  add_rxe();
  add_ethernet("eth0");
  add_gid(0, kLinkLocal, "RoCE v2", "eth0");
  add_gid(1, kAddress, "RoCE v2", "eth0");
  add_gid(2, "0000:0000:0000:0000:0000:0000:0000:0000", "RoCE v2", "");
  const Finding gid = finding_of(check_gids(machine(), {}, devices()), "gid");
  EXPECT_EQ(gid.colour, Colour::kGreen);
  EXPECT_EQ(gid.found, "rxe0 port 1 uses gid 1, ::ffff:192.0.2.1");
  EXPECT_THAT(gid.details,
              ElementsAre("gid 0 RoCE v2 fe80::5054:ff:fe12:3456 (eth0): left: link-local, reaches "
                          "one segment only",
                          "gid 1 RoCE v2 ::ffff:192.0.2.1 (eth0): taken"));
}

TEST_F(DoctorPortTest, LinkLocalGidsAloneAreRed) {
  add_rxe();
  add_ethernet("eth0");
  add_gid(0, kLinkLocal, "RoCE v2", "eth0");
  const Finding gid = finding_of(check_gids(machine(), {}, devices()), "gid");
  EXPECT_EQ(gid.colour, Colour::kRed);
  EXPECT_EQ(gid.found, "rxe0 port 1 has link-local GIDs only");
  EXPECT_EQ(gid.why,
            "a link-local address reaches one segment only, so connections to other hosts do not "
            "come up");
  EXPECT_EQ(gid.command, "sudo ip address add ADDRESS/PREFIX dev eth0");
}

TEST_F(DoctorPortTest, GidOfAnInterfaceOfAnotherNamespaceIsTold) {
  add_rxe();
  add_gid(1, kAddress, "RoCE v2", "veth7");
  const Finding gid = finding_of(check_gids(machine(), {}, devices()), "gid");
  ASSERT_EQ(gid.details.size(), 1U);
  EXPECT_THAT(gid.details.front(), HasSubstr("its interface is in another network namespace"));
}

TEST_F(DoctorPortTest, ExclusiveNamespacesWithoutADeviceAreTold) {
  put("/sys/module/ib_core/parameters/netns_mode", "N\n");
  const Finding finding = finding_of(check_namespaces(machine(), {}, devices()), "rdma-namespaces");
  EXPECT_EQ(finding.colour, Colour::kYellow);
  EXPECT_EQ(finding.found,
            "each RDMA device belongs to one network namespace (exclusive mode), and this one has "
            "none");
  EXPECT_THAT(finding.command, HasSubstr("sudo rdma dev set DEVICE netns NAME"));
}

TEST_F(DoctorPortTest, SharedNamespacesAreGreen) {
  put("/sys/module/ib_core/parameters/netns_mode", "Y\n");
  EXPECT_EQ(finding_of(check_namespaces(machine(), {}, {}), "rdma-namespaces").found,
            "RDMA devices are shared by all network namespaces");
}

}  // namespace
}  // namespace remora::apps::doctor
