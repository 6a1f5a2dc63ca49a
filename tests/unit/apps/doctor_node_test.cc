// The words of the doctor on modules, devices and the nodes in /dev/infiniband.

#include "doctor_machine.h"

namespace remora::apps::doctor {
namespace {

using ::testing::HasSubstr;

class DoctorNodeTest : public DoctorTest {};

TEST_F(DoctorNodeTest, ModuleThatIsOnDiskGetsTheCommandThatLoadsIt) {
  put("/lib/modules/6.1.0-18-amd64/modules.dep",
      "kernel/drivers/infiniband/core/ib_uverbs.ko: x\n");
  const Finding finding = finding_of(check_modules(machine(), {}, {}), "module.ib_uverbs");
  EXPECT_EQ(finding.colour, Colour::kYellow);
  EXPECT_EQ(finding.found, "module ib_uverbs is not loaded");
  EXPECT_EQ(finding.why, "programs reach RDMA devices through it");
  EXPECT_EQ(
      finding.command,
      "sudo modprobe ib_uverbs && echo ib_uverbs | sudo tee -a /etc/modules-load.d/rdma.conf");
}

TEST_F(DoctorNodeTest, ModuleThatIsNotInstalledIsTold) {
  const Finding finding = finding_of(check_modules(machine(), {}, {}), "module.rdma_ucm");
  EXPECT_EQ(finding.found,
            "module rdma_ucm is not loaded, and none is installed for this kernel as far as this "
            "process can see");
  EXPECT_THAT(finding.command, HasSubstr("apt install linux-image-$(uname -r)"));
}

TEST_F(DoctorNodeTest, LoadedModuleIsGreen) {
  make_folder("/sys/module/ib_uverbs");
  put("/lib/modules/6.1.0-18-amd64/modules.builtin", "kernel/drivers/x/rdma_ucm.ko\n");
  const Findings findings = check_modules(machine(), {}, {});
  EXPECT_EQ(finding_of(findings, "module.ib_uverbs").found, "module ib_uverbs is loaded");
  EXPECT_EQ(finding_of(findings, "module.ib_uverbs").colour, Colour::kGreen);
  EXPECT_EQ(finding_of(findings, "module.rdma_ucm").colour, Colour::kGreen);
}

TEST_F(DoctorNodeTest, ServerWithoutRdmaNeedsNoModule) {
  const auto without = server(64, config::Availability::kOff);
  EXPECT_TRUE(check_modules(machine(), {.server = &without}, {}).empty());
}

TEST_F(DoctorNodeTest, OnlyEthernetGetsTheCommandForSoftRoce) {
  add_ethernet("eth0");
  const Finding finding = finding_of(check_devices(machine(), {}, {}), "device");
  EXPECT_EQ(finding.colour, Colour::kYellow);
  EXPECT_EQ(finding.found, "the kernel has no RDMA device; there is only Ethernet (eth0)");
  EXPECT_EQ(finding.why, "rdma needs one; shm and tcp work without it");
  EXPECT_THAT(finding.command,
              HasSubstr("modprobe rdma_rxe && sudo rdma link add rxe0 type rxe netdev eth0"));
}

TEST_F(DoctorNodeTest, NoDeviceIsRedWhereRdmaIsRequired) {
  const auto required = server(64, config::Availability::kRequired);
  const Finding finding = finding_of(check_devices(machine(), {.server = &required}, {}), "device");
  EXPECT_EQ(finding.colour, Colour::kRed);
  EXPECT_EQ(finding.found, "the kernel has no RDMA device and no Ethernet interface");
  EXPECT_THAT(finding.command, HasSubstr("lspci"));
}

TEST_F(DoctorNodeTest, NicWithoutItsProviderGetsTheModule) {
  add_ethernet("enp1s0");
  link("/sys/class/net/enp1s0/device/driver", "../../../bus/pci/drivers/mlx5_core");
  const Finding finding = finding_of(check_devices(machine(), {}, {}), "device");
  EXPECT_EQ(finding.found, "the kernel has no RDMA device, but enp1s0 (mlx5_core) may have one");
  EXPECT_EQ(finding.command, "sudo modprobe mlx5_ib");
}

TEST_F(DoctorNodeTest, NicOfACloudWithoutReliableConnectionsGetsSoftRoce) {
  add_ethernet("ens5");
  link("/sys/class/net/ens5/device/driver", "../../../bus/pci/drivers/ena");
  const Finding finding = finding_of(check_devices(machine(), {}, {}), "device");
  EXPECT_EQ(finding.found, "the kernel has no RDMA device; there is only Ethernet (ens5)");
  EXPECT_THAT(finding.command, HasSubstr("modprobe rdma_rxe"));
}

TEST_F(DoctorNodeTest, SoftwareDeviceIsSaidToBeOne) {
  add_rxe();
  const Finding finding = finding_of(check_devices(machine(), {}, devices()), "device");
  EXPECT_EQ(finding.colour, Colour::kGreen);
  EXPECT_EQ(finding.found,
            "rxe0 is a software device, which clients use only with ?transport=rdma");
}

TEST_F(DoctorNodeTest, DeviceThatVerbsCannotOpenIsRed) {
  add_rxe();
  auto seen = devices();
  seen.front().open_error = "ibv_open_device: permission denied";
  const Finding finding = finding_of(check_devices(machine(), {}, seen), "device");
  EXPECT_EQ(finding.colour, Colour::kRed);
  EXPECT_EQ(finding.found,
            "rxe0 is a software device; verbs cannot open it: ibv_open_device: permission denied");
  EXPECT_EQ(finding.command, "ls -l /dev/infiniband; sudo dmesg | grep -i -e infiniband -e rxe0");
}

TEST_F(DoctorNodeTest, NodeThatThisUserMayNotOpenGetsTheUdevRule) {
  add_rxe();
  calls.nodes["/dev/infiniband/uverbs0"] = {.owner = 0, .group = 0, .mode = 0600};
  calls.nodes["/dev/infiniband/rdma_cm"] = {.owner = 0, .group = 0, .mode = 0666};
  calls.open_errors["/dev/infiniband/uverbs0"] = EACCES;
  const Findings findings = check_nodes(machine(), {}, devices());
  const Finding node = finding_of(findings, "node.uverbs");
  EXPECT_EQ(node.colour, Colour::kRed);
  EXPECT_EQ(node.found,
            "/dev/infiniband/uverbs0 has owner 0, group 0, mode 0600; this user (1000) cannot open "
            "it: Permission denied");
  EXPECT_EQ(node.command,
            "echo 'SUBSYSTEM==\"infiniband_verbs\", MODE=\"0666\"' | sudo tee -a "
            "/etc/udev/rules.d/90-rdma.rules && sudo udevadm control --reload && sudo udevadm "
            "trigger");
  const Finding manager = finding_of(findings, "node.rdma_cm");
  EXPECT_EQ(manager.colour, Colour::kGreen);
  EXPECT_EQ(manager.found,
            "/dev/infiniband/rdma_cm has owner 0, group 0, mode 0666; this user may open it");
}

TEST_F(DoctorNodeTest, NodeOfAControlGroupThatRefusesItIsTold) {
  add_rxe();
  calls.nodes["/dev/infiniband/uverbs0"] = {.owner = 0, .group = 0, .mode = 0666};
  calls.open_errors["/dev/infiniband/uverbs0"] = EPERM;
  const Finding node = finding_of(check_nodes(machine(), {}, devices()), "node.uverbs");
  EXPECT_EQ(node.why, "a control group refuses the device, as those of containers do");
  EXPECT_EQ(node.command, "start the container with --device /dev/infiniband/uverbs0");
}

TEST_F(DoctorNodeTest, NodeThatIsNotThereGetsTheModuleAndTheContainersOption) {
  add_rxe();
  const Finding node = finding_of(check_nodes(machine(), {}, devices()), "node.rdma_cm");
  EXPECT_EQ(node.colour, Colour::kRed);
  EXPECT_EQ(node.found, "/dev/infiniband/rdma_cm is not there");
  EXPECT_THAT(node.command, HasSubstr("sudo modprobe rdma_ucm"));
  EXPECT_THAT(node.command, HasSubstr("--device /dev/infiniband/rdma_cm"));
}

}  // namespace
}  // namespace remora::apps::doctor
