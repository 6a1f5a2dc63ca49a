// The words of the doctor on the firewall, on sockets of shm and on the service's unit.

#include "doctor_machine.h"

namespace remora::apps::doctor {
namespace {

using ::testing::HasSubstr;

constexpr const char* kDropAll =
    "table inet filter {\n"
    "  chain input {\n"
    "    type filter hook input priority filter; policy drop;\n"
    "    tcp dport 22 accept\n";

class DoctorServiceTest : public DoctorTest {
 protected:
  [[nodiscard]] Finding firewall(const Needs& needs = {}) const {
    return finding_of(check_firewall(machine(), needs, devices()), "firewall");
  }
  [[nodiscard]] Finding sockets() const { return finding_of(check_sockets(machine()), "sockets"); }
  [[nodiscard]] Finding unit(const Needs& needs = {}) const {
    return finding_of(check_unit(machine(), needs), "unit");
  }
};

TEST_F(DoctorServiceTest, FirewallIsForRootAlone) {
  add_rxe();
  const Finding finding = firewall();
  EXPECT_EQ(finding.colour, Colour::kNotChecked);
  EXPECT_EQ(finding.found, "the firewall's rules are visible to root alone");
  EXPECT_EQ(finding.root_adds,
            "whether the firewall lets TCP port 7471 and UDP port 4791 (RoCE v2) in");
}

TEST_F(DoctorServiceTest, FirewallThatDropsThePortIsYellow) {
  add_rxe();
  calls.user = 0;
  calls.rules = kDropAll;
  const Finding finding = firewall();
  EXPECT_EQ(finding.colour, Colour::kYellow);
  EXPECT_EQ(finding.found,
            "nftables drops what no rule accepts, and no rule names TCP port 7471 or UDP port 4791 "
            "(RoCE v2)");
  EXPECT_EQ(finding.why, "clients of other hosts cannot connect: they time out");
  EXPECT_EQ(finding.command, "sudo nft add rule inet filter input tcp dport 7471 accept");
}

TEST_F(DoctorServiceTest, FirewallThatDropsRoceAloneIsYellow) {
  add_rxe();
  calls.user = 0;
  calls.rules = std::string{kDropAll} + "    tcp dport { 80, 7471 } accept\n";
  const Finding finding = firewall();
  EXPECT_EQ(finding.found,
            "nftables drops what no rule accepts, and no rule names UDP port 4791 (RoCE v2)");
  EXPECT_EQ(finding.command, "sudo nft add rule inet filter input udp dport 4791 accept");
}

TEST_F(DoctorServiceTest, RoceOfANicPassesNoFirewall) {
  EXPECT_EQ(firewall().root_adds, "whether the firewall lets TCP port 7471 in");
  calls.user = 0;
  calls.rules = std::string{kDropAll} + "    tcp dport { 80, 7471 } accept\n";
  EXPECT_EQ(firewall().colour, Colour::kGreen);
}

TEST_F(DoctorServiceTest, LastRuleThatRejectsAllIsYellow) {
  calls.user = 0;
  const std::string chain =
      "table inet firewalld {\n"
      "\tchain filter_INPUT {\n"
      "\t\ttype filter hook input priority filter + 10; policy accept;\n"
      "\t\tct state { established, related } accept\n"
      "\t\tct state invalid drop\n";
  calls.rules = chain + "\t}\n\tchain other {\n\t\tdrop\n\t}\n}\n";
  EXPECT_EQ(firewall().colour, Colour::kGreen) << "packets that come in do not pass the other";
  calls.rules = chain + "\t\treject with icmpx admin-prohibited\n\t}\n}\n";
  EXPECT_EQ(firewall().colour, Colour::kYellow);
  EXPECT_EQ(firewall().command,
            "sudo firewall-cmd --permanent --add-port=7471/tcp && sudo firewall-cmd --reload");
  calls.rules = chain + "\t\tcounter packets 10 bytes 300 drop\n\t}\n}\n";
  EXPECT_EQ(firewall().colour, Colour::kYellow);
}

TEST_F(DoctorServiceTest, NumberWithinAnotherOneIsNotThePort) {
  calls.user = 0;
  calls.rules = std::string{kDropAll} + "    tcp dport 17471 accept\n    udp dport 4791 accept\n";
  EXPECT_THAT(firewall().found, HasSubstr("no rule names TCP port 7471"));
}

TEST_F(DoctorServiceTest, FirewallThatAcceptsIsGreen) {
  calls.user = 0;
  calls.rules =
      "table inet filter {\n chain input {\n type filter hook input priority filter; "
      "policy accept;\n";
  EXPECT_EQ(firewall().colour, Colour::kGreen);
  calls.rules = std::string{kDropAll} + "tcp dport 7471 accept\nudp dport 4791 accept\n";
  EXPECT_EQ(firewall().found, "nftables drops what no rule accepts; rules name TCP port 7471");
}

TEST_F(DoctorServiceTest, FirewallWithoutAnAnswerIsNotChecked) {
  calls.user = 0;
  EXPECT_EQ(firewall().colour, Colour::kNotChecked);
}

TEST_F(DoctorServiceTest, ServerOfThisHostAloneNeedsNoFirewall) {
  const auto pool = server(64);  // listens on 127.0.0.1
  EXPECT_EQ(firewall({.server = &pool}).colour, Colour::kGreen);
}

TEST_F(DoctorServiceTest, StaleSocketsAreNamedWithTheCommand) {
  calls.variables["REMORA_RUNTIME_DIR"] = "/run/remora";
  put("/run/remora/remora-7471.sock", "");
  put("/run/remora/remora-7472.sock", "");
  put("/run/remora/other", "");
  put("/proc/net/unix", "0: 2 0 10000 0005 01 1 /run/remora/remora-7471.sock\n");
  calls.connect_errors["/run/remora/remora-7472.sock"] = ECONNREFUSED;
  const Finding finding = sockets();
  EXPECT_EQ(finding.colour, Colour::kYellow);
  EXPECT_EQ(finding.found,
            "sockets for shm in /run/remora: 1, and stale ones of servers that were killed: "
            "/run/remora/remora-7472.sock");
  EXPECT_EQ(finding.command, "rm /run/remora/remora-7472.sock");
}

TEST_F(DoctorServiceTest, FolderOfTheUserIsLookedInWithoutAVariable) {
  EXPECT_EQ(sockets().found, "sockets for shm in /tmp/remora-1000: 0");
  EXPECT_EQ(sockets().colour, Colour::kGreen);
}

TEST_F(DoctorServiceTest, UnitThatIsNotInstalledIsGreen) {
  EXPECT_EQ(unit().found, "no remora-server.service is installed");
}

TEST_F(DoctorServiceTest, UnitWithItsLimitsIsGreen) {
  put("/usr/lib/systemd/system/remora-server.service",
      "[Service]\nLimitMEMLOCK=infinity\nLimitNOFILE=65536\n");
  EXPECT_EQ(unit().found, "remora-server.service has the limits that it needs");
}

TEST_F(DoctorServiceTest, DropInThatLowersALimitIsYellow) {
  put("/usr/lib/systemd/system/remora-server.service",
      "[Service]\nLimitMEMLOCK=infinity\nLimitNOFILE=65536\n");
  put("/etc/systemd/system/remora-server.service.d/override.conf", "[Service]\nLimitMEMLOCK=8M\n");
  const auto pool = server(64);
  const Finding finding = unit({.server = &pool});
  EXPECT_EQ(finding.colour, Colour::kYellow);
  EXPECT_EQ(finding.found, "LimitMEMLOCK=8M");
  EXPECT_EQ(finding.command,
            "sudo systemctl edit remora-server   # [Service], then LimitMEMLOCK=infinity; sudo "
            "systemctl restart remora-server");
}

TEST_F(DoctorServiceTest, UnitWithoutDevicesIsYellow) {
  put("/etc/systemd/system/remora-server.service",
      "[Service]\nLimitMEMLOCK=infinity\nLimitNOFILE=65536\nPrivateDevices=yes\n");
  EXPECT_EQ(unit().found, "PrivateDevices=yes");
}

}  // namespace
}  // namespace remora::apps::doctor
