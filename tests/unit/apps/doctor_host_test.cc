// The words of the doctor on the process's limits, versions, the clock and containers.

#include "doctor_machine.h"

namespace remora::apps::doctor {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

class DoctorHostTest : public DoctorTest {};

TEST_F(DoctorHostTest, FewDescriptorsAreYellowWithTheNumber) {
  calls.files = {.soft = 1024, .hard = 4096};
  const auto pool = server(64);
  const Finding finding = finding_of(check_open_files(machine(), {.server = &pool}), "open-files");
  EXPECT_EQ(finding.colour, Colour::kYellow);
  EXPECT_EQ(finding.found,
            "open files: soft limit 1024, hard limit 4096; a server with these limits may need "
            "7552");
  EXPECT_EQ(finding.why, "clients beyond the limit are turned away");
  EXPECT_EQ(finding.command,
            "ulimit -n 7552   # a unit: LimitNOFILE=; a container: --ulimit nofile=7552");
}

TEST_F(DoctorHostTest, ClientNeedsFewDescriptors) {
  calls.files = {.soft = 1024, .hard = 4096};
  EXPECT_EQ(finding_of(check_open_files(machine(), {}), "open-files").colour, Colour::kGreen);
}

TEST_F(DoctorHostTest, VersionsOfKernelAndRdmaCoreAreTold) {
  put("/proc/self/maps",
      "7f00-7f01 r-xp 0 08:01 1   /usr/lib/x86_64-linux-gnu/libc.so.6\n"
      "7f02-7f03 r-xp 0 08:01 2   /usr/lib/x86_64-linux-gnu/libibverbs.so.1.14.44.0\n");
  const Findings findings = check_versions(machine(), {});
  EXPECT_EQ(finding_of(findings, "kernel").found, "Linux 6.1.0-18-amd64");
  EXPECT_EQ(finding_of(findings, "rdma-core").found, "rdma-core 44");
  EXPECT_EQ(finding_of(findings, "rdma-core").colour, Colour::kGreen);
}

TEST_F(DoctorHostTest, LibraryOfAnotherOriginIsYellow) {
  put("/proc/self/maps", "7f02-7f03 r-xp 0 08:01 2   /opt/x/libibverbs.so.1.14.58.0\n");
  const Finding finding = finding_of(check_versions(machine(), {}), "rdma-core");
  EXPECT_EQ(finding.colour, Colour::kYellow);
  EXPECT_EQ(finding.found, "rdma-core 58; libibverbs is /opt/x/libibverbs.so.1.14.58.0");
}

TEST_F(DoctorHostTest, DriversOfMlnxOfedAreYellow) {
  make_folder("/sys/module/mlx_compat");
  const Finding finding = finding_of(check_versions(machine(), {}), "rdma-core");
  EXPECT_EQ(finding.colour, Colour::kYellow);
  EXPECT_THAT(finding.found, EndsWith("the kernel's RDMA drivers are those of MLNX_OFED "
                                      "(mlx_compat)"));
}

TEST_F(DoctorHostTest, FirmwareThatADeviceDoesNotTellIsNotChecked) {
  DeviceView nic;
  nic.name = "mlx5_0";
  const Finding finding = finding_of(check_versions(machine(), {nic}), "firmware");
  EXPECT_EQ(finding.colour, Colour::kNotChecked);
  EXPECT_EQ(finding.found, "mlx5_0 does not say its firmware's version");
}

TEST_F(DoctorHostTest, SlowClockIsYellow) {
  const std::string folder = "/sys/devices/system/clocksource/clocksource0/";
  put(folder + "current_clocksource", "hpet\n");
  put(folder + "available_clocksource", "tsc hpet acpi_pm\n");
  const Finding finding = finding_of(check_clock(machine()), "clock");
  EXPECT_EQ(finding.colour, Colour::kYellow);
  EXPECT_EQ(finding.found, "clock source hpet");
  EXPECT_EQ(finding.command,
            "echo tsc | sudo tee /sys/devices/system/clocksource/clocksource0/"
            "current_clocksource");
  put(folder + "current_clocksource", "tsc\n");
  EXPECT_EQ(finding_of(check_clock(machine()), "clock").colour, Colour::kGreen);
}

TEST_F(DoctorHostTest, ClockThatIsNotKnownIsNotChecked) {
  EXPECT_EQ(finding_of(check_clock(machine()), "clock").colour, Colour::kNotChecked);
}

TEST_F(DoctorHostTest, ContainerWithoutNodesIsRedWithTheOptions) {
  put("/run/.containerenv", "");
  add_rxe();
  const Finding finding = finding_of(check_container(machine(), devices()), "container.devices");
  EXPECT_EQ(finding.colour, Colour::kRed);
  EXPECT_EQ(finding.found, "the container has no /dev/infiniband, and the kernel has rxe0");
  EXPECT_EQ(finding.command,
            "start the container with --device /dev/infiniband/rdma_cm --device "
            "/dev/infiniband/uverbs0");
}

TEST_F(DoctorHostTest, ContainerOfItsOwnProcessesIsYellow) {
  put("/proc/1/cgroup", "0::/docker/0123\n");
  put("/proc/self/status", "NSpid:\t1\nSeccomp:\t2\nCapBnd:\t00000000a80025fb\n");
  link("/proc/self/ns/pid", "pid:[4026532741]");
  const Findings findings = check_container(machine(), {});
  EXPECT_EQ(finding_of(findings, "container").found,
            "in a container, with a seccomp filter, without CAP_IPC_LOCK");
  EXPECT_EQ(finding_of(findings, "container.processes").colour, Colour::kYellow);
  EXPECT_THAT(finding_of(findings, "container.processes").command,
              HasSubstr("--pid container:SERVER"));
}

TEST_F(DoctorHostTest, ContainerThatSharesTheProcessesOfTheHostIsGreen) {
  put("/.dockerenv", "");
  link("/proc/self/ns/pid", "pid:[4026531836]");
  const Findings findings = check_container(machine(), {});
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings.front().colour, Colour::kGreen);
}

TEST_F(DoctorHostTest, HostIsNoContainer) {
  link("/proc/self/ns/pid", "pid:[4026531836]");
  const Findings findings = check_container(machine(), {});
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings.front().found, "not in a container");
}

}  // namespace
}  // namespace remora::apps::doctor
