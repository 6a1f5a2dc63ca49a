// Ports, their addresses (GIDs) with the reason for or against each, and namespaces.

#include <string>
#include <utility>

#include <remora/verbs/gid.h>

#include "doctor/checks.h"

namespace remora::apps::doctor {
namespace {

bool any_active(const std::vector<DeviceView>& devices) {
  for (const DeviceView& device : devices)
    for (const PortView& port : device.ports)
      if (port.state == "ACTIVE") return true;
  return false;
}

std::string port_name(const DeviceView& device, const PortView& port) {
  return device.name + " port " + std::to_string(port.number);
}

/// The first interface to which a GID of the port belongs.
std::string interface_of(const PortView& port) {
  for (const GidRow& row : port.gids)
    if (!row.interface.empty()) return row.interface;
  return {};
}

std::string or_placeholder(std::string interface) {
  return interface.empty() ? "INTERFACE" : std::move(interface);
}

/// The command that makes a port active.
std::string command_for_link(const PortView& port) {
  if (port.link_layer == "InfiniBand") {
    if (port.state == "INIT") return "sudo systemctl start opensm   # on one host of the subnet";
    return "ibstat   # the cable and the switch's port";
  }
  const std::string interface = or_placeholder(interface_of(port));
  return "sudo ip link set " + interface + " up && ethtool " + interface;
}

Finding port_finding(const DeviceView& device, const PortView& port, Colour fault) {
  Finding finding{.id = "port"};
  finding.found = port_name(device, port) + " is " + port.state;
  if (!port.physical_state.empty()) finding.found += " (" + port.physical_state + ")";
  if (!port.link_layer.empty()) finding.found += ", " + port.link_layer;
  if (!port.rate.empty()) finding.found += ", " + port.rate;
  if (port.active_mtu_bytes != 0)
    finding.found += ", MTU " + std::to_string(port.active_mtu_bytes) + " of " +
                     std::to_string(port.max_mtu_bytes);
  if (port.state != "ACTIVE") {
    finding.colour = fault;
    finding.why = port.state == "INIT" && port.link_layer == "InfiniBand"
                      ? "the link is up, and no subnet manager has set the port up"
                      : "nothing is sent or received over a port that is not active";
    finding.command = command_for_link(port);
    return finding;
  }
  if (port.active_mtu_bytes != 0 && port.active_mtu_bytes < port.max_mtu_bytes &&
      port.link_layer == "Ethernet") {
    const std::string interface = or_placeholder(interface_of(port));
    finding.colour = Colour::kYellow;
    finding.why = "packets are smaller than the device can send: large transfers are slower";
    finding.command = "sudo ip link set " + interface + " mtu " +
                      (port.max_mtu_bytes > 2048 ? "9000" : "4200") +
                      "   # on both hosts and on the switches between them";
  }
  return finding;
}

verbs::GidChoice choice_of(const PortView& port) {
  std::vector<verbs::GidEntry> table;
  table.reserve(port.gids.size());
  for (const GidRow& row : port.gids) table.push_back(row.entry);
  return verbs::choose_gid(table, {.port = port.number});
}

/// "gid 1 RoCE v2 ::ffff:192.0.2.1 (eth0): taken".
std::string gid_line(const FileView& files, const GidRow& row, verbs::GidVerdict verdict) {
  std::string text = "gid " + std::to_string(row.entry.index) + " " +
                     std::string{verbs::to_string(row.entry.type)} + " " +
                     row.entry.gid.to_string();
  if (!row.interface.empty()) text += " (" + row.interface + ")";
  text += ": " + std::string{verbs::to_string(verdict)};
  if (!row.interface.empty() && !files.exists("/sys/class/net/" + row.interface))
    text += "; its interface is in another network namespace";
  return text;
}

Finding gid_finding(const FileView& files, const DeviceView& device, const PortView& port,
                    Colour fault) {
  Finding finding{.id = "gid"};
  const verbs::GidChoice choice = choice_of(port);
  const auto candidates = choice.candidates();
  bool link_local = false;
  for (std::size_t i = 0; i < candidates.size() && i < port.gids.size(); ++i) {
    finding.details.push_back(gid_line(files, port.gids[i], candidates[i].verdict));
    link_local = link_local || candidates[i].verdict == verbs::GidVerdict::kLinkLocal;
  }
  if (const auto taken = choice.taken()) {
    finding.found = port_name(device, port) + " uses gid " + std::to_string(taken->index) + ", " +
                    taken->gid.to_string();
    return finding;
  }
  finding.colour = fault;
  finding.found = port_name(device, port) + (port.gids.empty() ? " has no GID"
                                             : link_local      ? " has link-local GIDs only"
                                                               : " has no GID that can be used");
  finding.why = link_local ? "a link-local address reaches one segment only, so connections to "
                             "other hosts do not come up"
                           : "a queue pair on RoCE needs a GID that is made from an address";
  finding.command = "sudo ip address add ADDRESS/PREFIX dev " + or_placeholder(interface_of(port));
  return finding;
}

}  // namespace

Findings check_ports(const Machine& /*machine*/, const Needs& needs,
                     const std::vector<DeviceView>& devices) {
  // For a NIC with two ports one cable is enough.
  Colour fault = rdma_fault(needs, true);
  if (fault == Colour::kRed && any_active(devices)) fault = Colour::kYellow;
  Findings findings;
  for (const DeviceView& device : devices)
    for (const PortView& port : device.ports) findings.push_back(port_finding(device, port, fault));
  return findings;
}

Findings check_gids(const Machine& machine, const Needs& needs,
                    const std::vector<DeviceView>& devices) {
  Findings findings;
  for (const DeviceView& device : devices)
    for (const PortView& port : device.ports)
      if (port.state == "ACTIVE")
        findings.push_back(gid_finding(machine.files, device, port, rdma_fault(needs, true)));
  return findings;
}

Findings check_namespaces(const Machine& machine, const Needs& needs,
                          const std::vector<DeviceView>& devices) {
  const std::string mode = machine.files.text("/sys/module/ib_core/parameters/netns_mode");
  if (mode.empty()) return {};
  Finding finding{.id = "rdma-namespaces"};
  if (mode == "Y") {
    finding.found = "RDMA devices are shared by all network namespaces";
    return {finding};
  }
  finding.found = "each RDMA device belongs to one network namespace (exclusive mode)";
  if (!devices.empty()) return {finding};
  finding.colour = rdma_fault(needs, false);
  finding.found += ", and this one has none";
  finding.why = "a device of another namespace cannot be seen or used here";
  finding.command =
      "sudo rdma dev set DEVICE netns NAME   # from the namespace that has it; 'rdma system set "
      "netns shared' shares all";
  return {finding};
}

}  // namespace remora::apps::doctor
