// The words of the doctor on a server's file.

#include <algorithm>

#include <remora/config/load.h>

#include "doctor/config_check.h"
#include "doctor_machine.h"

namespace remora::apps::doctor {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class DoctorConfigTest : public DoctorTest {
 protected:
  /// Without a control group that limits memory.
  [[nodiscard]] Findings check(const config::ServerConfig& config) const {
    const config::CgroupFiles none{.of_process = root_ + "/proc/self/cgroup",
                                   .root = root_ + "/sys/fs/cgroup"};
    return check_config(machine(), config, devices(), none);
  }
};

TEST_F(DoctorConfigTest, PinsOfAServerAreTold) {
  const Findings findings = check(server(64));
  EXPECT_EQ(finding_of(findings, "config").found, "the configuration has no faults");
  EXPECT_EQ(finding_of(findings, "config.memory").found,
            "the server takes 64MiB for its pool; over rdma it pins 65856KiB for one session that "
            "has all of it open, and the pool but once where the device has memory windows that "
            "protect");
  EXPECT_EQ(worst(findings), Colour::kGreen);
}

TEST_F(DoctorConfigTest, ServerWithoutRdmaPinsNothing) {
  EXPECT_EQ(finding_of(check(server(64, config::Availability::kOff)), "config.memory").found,
            "the server takes 64MiB for its pool and pins nothing: transports.rdma is off");
}

TEST_F(DoctorConfigTest, PoolThatDoesNotFitIsRed) {
  put("/proc/meminfo", "MemAvailable:      32768 kB\n");
  const Finding finding = finding_of(check(server(64)), "config.memory-free");
  EXPECT_EQ(finding.colour, Colour::kRed);
  EXPECT_EQ(finding.found, "pool.size is 64MiB, and 32MiB of this machine's memory is available");
}

TEST_F(DoctorConfigTest, PoolOfReservedPagesNeedsNoOtherMemory) {
  put("/proc/meminfo",
      "MemAvailable:      32768 kB\nHugePages_Total:      32\nHugePages_Free:       32\n"
      "Hugepagesize: 2048 kB\n");
  auto config = server(64);
  const auto about_memory = [&] {
    const Findings findings = check(config);
    return std::any_of(findings.begin(), findings.end(),
                       [](const Finding& each) { return each.id == "config.memory-free"; });
  };
  EXPECT_FALSE(about_memory());
  config.pool.huge_pages = config::HugePages::kNever;
  EXPECT_TRUE(about_memory());
}

TEST_F(DoctorConfigTest, ControlGroupThatIsTooSmallIsRed) {
  put("/proc/self/cgroup", "0::/small\n");
  put("/sys/fs/cgroup/small/memory.max", "33554432\n");
  put("/sys/fs/cgroup/small/memory.current", "0\n");
  const Finding finding = finding_of(check(server(64)), "config.memory-limit");
  EXPECT_EQ(finding.colour, Colour::kRed);
  EXPECT_EQ(finding.why, "the server does not start");
}

TEST_F(DoctorConfigTest, MemoryThatAServerWhichRunsHasTakenIsNotMissing) {
  put("/proc/meminfo", "MemAvailable:      32768 kB\n");
  calls.bind_errors[7471] = EADDRINUSE;
  EXPECT_EQ(worst(check(server(64))), Colour::kYellow) << "the port alone is told";
}

TEST_F(DoctorConfigTest, PortInUseIsYellowWithTheCommand) {
  calls.bind_errors[7471] = EADDRINUSE;
  const Finding finding = finding_of(check(server(64)), "config.listen");
  EXPECT_EQ(finding.colour, Colour::kYellow);
  EXPECT_EQ(finding.found, "listen 127.0.0.1:7471: Address already in use");
  EXPECT_EQ(finding.command, "ss -ltnp sport = :7471");
}

TEST_F(DoctorConfigTest, AddressOfAnotherMachineIsRed) {
  auto config = server(64);
  config.listen.address = "192.0.2.9";
  calls.bind_errors[7471] = EADDRNOTAVAIL;
  const Finding finding = finding_of(check(config), "config.listen");
  EXPECT_EQ(finding.colour, Colour::kRed);
  EXPECT_THAT(finding.found, StartsWith("listen 192.0.2.9:7471: "));
  EXPECT_EQ(finding.why, "it is no address of this machine: the server does not start");
}

TEST_F(DoctorConfigTest, DeviceThatIsNotThereIsRedWhereRdmaIsRequired) {
  add_rxe();
  auto config = server(64, config::Availability::kRequired);
  config.transports.rdma_devices = {"mlx5_0"};
  const Finding finding = finding_of(check(config), "config.device");
  EXPECT_EQ(finding.colour, Colour::kRed);
  EXPECT_EQ(finding.found, "transports.rdma_device names mlx5_0, which is not there (rxe0)");
}

TEST_F(DoctorConfigTest, FaultsOfTheFileAreListed) {
  const auto loaded = config::parse_server("pol: 3\n", "bad.yaml");
  ASSERT_FALSE(loaded);
  const Finding finding = finding_of(config_faults("bad.yaml", loaded.error()), "config");
  EXPECT_EQ(finding.colour, Colour::kRed);
  EXPECT_THAT(finding.found, HasSubstr("bad.yaml: "));
  EXPECT_EQ(finding.why, "a server with this file does not start");
  EXPECT_THAT(finding.details, Contains(StartsWith("bad.yaml:1:1: ")));
}

}  // namespace
}  // namespace remora::apps::doctor
