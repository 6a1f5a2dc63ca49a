// Kernel modules, devices, and the files in /dev/infiniband by which a process uses them.

#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "doctor/checks.h"

namespace remora::apps::doctor {
namespace {

/// A module of the running kernel.
enum class ModuleState { kLoaded, kOnDisk, kMissing };

ModuleState module_state(const FileView& files, std::string_view name) {
  if (files.exists("/sys/module/" + std::string{name})) return ModuleState::kLoaded;
  const std::string folder = "/lib/modules/" + files.text("/proc/sys/kernel/osrelease") + "/";
  const std::string file = "/" + std::string{name} + ".ko";
  if (files.text(folder + "modules.builtin").find(file) != std::string::npos)
    return ModuleState::kLoaded;
  return files.text(folder + "modules.dep").find(file) != std::string::npos ? ModuleState::kOnDisk
                                                                            : ModuleState::kMissing;
}

Finding module_finding(const FileView& files, std::string_view name, std::string why,
                       Colour colour) {
  const std::string module{name};
  Finding finding{.id = "module." + module};
  switch (module_state(files, name)) {
    case ModuleState::kLoaded: finding.found = "module " + module + " is loaded"; return finding;
    case ModuleState::kOnDisk:
      finding.found = "module " + module + " is not loaded";
      finding.command = "sudo modprobe " + module + " && echo " + module +
                        " | sudo tee -a /etc/modules-load.d/rdma.conf";
      break;
    case ModuleState::kMissing:
      finding.found = "module " + module +
                      " is not loaded, and none is installed for this kernel as far as "
                      "this process can see";
      finding.command =
          "sudo apt install linux-image-$(uname -r)   # on Ubuntu: linux-modules-extra-$(uname -r)";
      break;
  }
  finding.colour = colour;
  finding.why = std::move(why);
  return finding;
}

std::string octal(mode_t mode) {
  std::string text;
  for (unsigned shift = 9;; shift -= 3) {
    text.push_back(static_cast<char>('0' + ((mode >> shift) & 7U)));
    if (shift == 0) return text;
  }
}

/// The udev rule for one kind of device file, written to a file and applied.
std::string udev_command(bool connection_manager) {
  const std::string rule = connection_manager ? R"(KERNEL=="rdma_cm", MODE="0666")"
                                              : R"(SUBSYSTEM=="infiniband_verbs", MODE="0666")";
  return "echo '" + rule +
         "' | sudo tee -a /etc/udev/rules.d/90-rdma.rules && sudo udevadm control --reload && "
         "sudo udevadm trigger";
}

Finding missing_node(const std::string& path, bool connection_manager, Colour colour) {
  return {.id = connection_manager ? "node.rdma_cm" : "node.uverbs",
          .colour = colour,
          .found = path + " is not there",
          .why = connection_manager
                     ? "rdma connections are made through it; without it no client and no server "
                       "uses rdma"
                     : "a process reaches the device through it",
          .command = connection_manager
                         ? "sudo modprobe rdma_ucm   # in a container: --device " + path
                         : "sudo modprobe ib_uverbs && sudo udevadm trigger "
                           "--subsystem-match=infiniband_verbs   # in a container: --device " +
                               path};
}

Finding node_finding(const Machine& machine, const std::string& path, bool connection_manager,
                     Colour colour) {
  const auto status = machine.calls.status(path);
  if (!status) return missing_node(path, connection_manager, colour);
  Finding finding{.id = connection_manager ? "node.rdma_cm" : "node.uverbs"};
  finding.found = path + " has owner " + std::to_string(status->owner) + ", group " +
                  std::to_string(status->group) + ", mode " + octal(status->mode);
  const int number = machine.calls.open_error(path);
  if (number == 0) {
    finding.found += "; this user may open it";
    return finding;
  }
  finding.found += "; this user (" + std::to_string(machine.calls.effective_user()) +
                   ") cannot open it: " + std::strerror(number);
  finding.colour = colour;
  if (number == EACCES) {
    finding.why = "a process of this user cannot use rdma";
    finding.command = udev_command(connection_manager);
  } else if (number == EPERM) {
    finding.why = "a control group refuses the device, as those of containers do";
    finding.command = "start the container with --device " + path;
  } else {
    finding.why = "the kernel has no device behind it";
    finding.command = "sudo dmesg | grep -i -e infiniband -e uverbs";
  }
  return finding;
}

/// The command that makes a device from the hardware of the machine.
Finding no_device(const Machine& machine, const Needs& needs) {
  Finding finding{.id = "device", .colour = rdma_fault(needs, false)};
  finding.found = "the kernel has no RDMA device";
  finding.why = needs.without_rdma() ? "" : "rdma needs one; shm and tcp work without it";
  std::string ethernet;
  for (const EthernetInterface& interface : read_interfaces(machine.files)) {
    const std::string_view provider = provider_module(interface.driver);
    if (!provider.empty()) {
      finding.found += ", but " + interface.name + " (" + interface.driver + ") may have one";
      finding.command = "sudo modprobe " + std::string{provider};
      return finding;
    }
    if (ethernet.empty() || !interface.driver.empty()) ethernet = interface.name;
  }
  if (ethernet.empty()) {
    finding.found += " and no Ethernet interface";
    finding.command =
        "lspci -nn | grep -i -e ethernet -e infiniband   # without a NIC: transports.rdma: off";
    return finding;
  }
  finding.found += "; there is only Ethernet (" + ethernet + ")";
  finding.command = "sudo modprobe rdma_rxe && sudo rdma link add rxe0 type rxe netdev " +
                    ethernet + "   # Soft-RoCE: real verbs, slower than tcp";
  return finding;
}

}  // namespace

Findings check_modules(const Machine& machine, const Needs& needs,
                       const std::vector<DeviceView>& devices) {
  if (needs.without_rdma()) return {};
  const Colour colour = rdma_fault(needs, !devices.empty());
  Findings findings;
  findings.push_back(
      module_finding(machine.files, "ib_uverbs", "programs reach RDMA devices through it", colour));
  findings.push_back(module_finding(machine.files, "rdma_ucm",
                                    "programs make rdma connections through it", colour));
  if (devices.empty() && module_state(machine.files, "rdma_rxe") == ModuleState::kMissing)
    findings.push_back(module_finding(machine.files, "rdma_rxe",
                                      "without it there is no Soft-RoCE over an Ethernet interface",
                                      Colour::kNotChecked));
  return findings;
}

Findings check_devices(const Machine& machine, const Needs& needs,
                       const std::vector<DeviceView>& devices) {
  if (devices.empty()) return {no_device(machine, needs)};
  Findings findings;
  for (const DeviceView& device : devices) {
    Finding finding{.id = "device"};
    finding.found = device.name + (device.software ? " is a software device" : " is a NIC");
    if (!device.model.empty()) finding.found += ", " + device.model;
    if (!device.firmware.empty() && !device.software)
      finding.found += ", firmware " + device.firmware;
    if (device.uverbs.empty()) {
      finding.colour = rdma_fault(needs, true);
      finding.found += "; ib_uverbs does not serve it";
      finding.why = "no program can use it";
      finding.command = "sudo modprobe ib_uverbs";
    } else if (!device.open_error.empty()) {
      finding.colour = rdma_fault(needs, true);
      finding.found += "; verbs cannot open it: " + device.open_error;
      finding.why = "no program of this user can use it";
      finding.command =
          "ls -l /dev/infiniband; sudo dmesg | grep -i -e infiniband -e " + device.name;
    } else if (device.software) {
      finding.found += ", which clients use only with ?transport=rdma";
    }
    findings.push_back(std::move(finding));
  }
  return findings;
}

Findings check_nodes(const Machine& machine, const Needs& needs,
                     const std::vector<DeviceView>& devices) {
  if (needs.without_rdma() || devices.empty()) return {};
  const Colour colour = rdma_fault(needs, true);
  Findings findings;
  for (const DeviceView& device : devices)
    if (!device.uverbs.empty())
      findings.push_back(node_finding(machine, "/dev/infiniband/" + device.uverbs, false, colour));
  findings.push_back(node_finding(machine, "/dev/infiniband/rdma_cm", true, colour));
  return findings;
}

}  // namespace remora::apps::doctor
