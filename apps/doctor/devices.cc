#include "doctor/devices.h"

#include <algorithm>
#include <arpa/inet.h>
#include <string_view>
#include <utility>

#include <remora/verbs/device.h>

namespace remora::apps::doctor {
namespace {

constexpr std::string_view kDevices = "/sys/class/infiniband";
constexpr std::string_view kEthernetType = "1";  // ARPHRD_ETHER

/// "4: ACTIVE" has the number of the state before its name.
std::string behind_colon(const std::string& text) {
  const std::size_t colon = text.find(": ");
  return colon == std::string::npos ? text : text.substr(colon + 2);
}

verbs::GidType gid_type(std::string_view text, bool ethernet) {
  if (text == "RoCE v2") return verbs::GidType::kRoceV2;
  if (text == "IB/RoCE v1" || text == "RoCE v1" || text == "IB")
    return ethernet ? verbs::GidType::kRoceV1 : verbs::GidType::kInfiniBand;
  return verbs::GidType::kUnknown;
}

std::vector<GidRow> read_gids(const FileView& files, const std::string& port_path,
                              const PortView& port) {
  std::vector<GidRow> rows;
  const std::string gids = port_path + "/gids/";
  const std::string types = port_path + "/gid_attrs/types/";
  const std::string interfaces = port_path + "/gid_attrs/ndevs/";
  for (const std::string& name : files.list(port_path + "/gids")) {
    GidRow row;
    const auto index = leading_number(name);
    const std::string text = files.text(gids + name);
    if (!index || ::inet_pton(AF_INET6, text.c_str(), row.entry.gid.bytes.data()) != 1) continue;
    if (row.entry.gid.is_zero()) continue;
    row.entry.index = static_cast<std::uint32_t>(*index);
    row.entry.port = port.number;
    row.entry.type = gid_type(files.text(types + name), port.link_layer == "Ethernet");
    row.interface = files.text(interfaces + name);
    rows.push_back(std::move(row));
  }
  std::sort(rows.begin(), rows.end(),
            [](const GidRow& a, const GidRow& b) { return a.entry.index < b.entry.index; });
  return rows;
}

PortView read_port(const FileView& files, const std::string& path, std::uint8_t number) {
  PortView port;
  port.number = number;
  port.state = behind_colon(files.text(path + "/state"));
  port.physical_state = behind_colon(files.text(path + "/phys_state"));
  port.link_layer = files.text(path + "/link_layer");
  port.rate = files.text(path + "/rate");
  port.gids = read_gids(files, path, port);
  return port;
}

DeviceView read_device(const FileView& files, const std::string& name) {
  const std::string path = std::string{kDevices} + "/" + name;
  DeviceView device;
  device.name = name;
  device.software = files.link(path).find("/virtual/") != std::string::npos;
  device.firmware = files.text(path + "/fw_ver");
  device.model = files.text(path + "/hca_type");
  if (device.model.empty()) device.model = files.text(path + "/board_id");
  const std::string node = files.text(path + "/device/numa_node");
  if (const auto number = leading_number(node)) device.memory_node = static_cast<int>(*number);
  const std::string ports = path + "/ports/";
  for (const std::string& port : files.list(path + "/ports"))
    if (const auto number = leading_number(port); number && *number > 0 && *number < 256)
      device.ports.push_back(read_port(files, ports + port, static_cast<std::uint8_t>(*number)));
  return device;
}

void ask_device(DeviceView& view, const verbs::DeviceEntry& entry) {
  const auto device = entry.open();
  if (!device) {
    view.open_error = device.error().message();
    return;
  }
  for (PortView& port : view.ports) {
    const auto attributes = device->query_port(port.number);
    if (!attributes) continue;
    port.active_mtu_bytes = verbs::mtu_bytes(attributes->active_mtu);
    port.max_mtu_bytes = verbs::mtu_bytes(attributes->max_mtu);
  }
}

}  // namespace

std::vector<DeviceView> read_devices(const FileView& files) {
  std::vector<DeviceView> devices;
  for (const std::string& name : files.list(std::string{kDevices}))
    devices.push_back(read_device(files, name));
  constexpr std::string_view kVerbs = "/sys/class/infiniband_verbs/";
  for (const std::string& node : files.list(std::string{kVerbs})) {
    const std::string served = files.text(std::string{kVerbs} + node + "/ibdev");
    for (DeviceView& device : devices)
      if (device.name == served) device.uverbs = node;
  }
  return devices;
}

void ask_verbs(std::vector<DeviceView>& devices) {
  if (devices.empty()) return;
  const auto list = verbs::devices();
  for (DeviceView& device : devices) {
    if (!list) {
      device.open_error = list.error().message();
      continue;
    }
    const auto entry = list->find(device.name);
    if (entry)
      ask_device(device, *entry);
    else
      device.open_error = entry.error().message();
  }
}

std::vector<EthernetInterface> read_interfaces(const FileView& files) {
  std::vector<EthernetInterface> interfaces;
  constexpr std::string_view kNet = "/sys/class/net/";
  for (const std::string& name : files.list(std::string{kNet})) {
    const std::string path = std::string{kNet} + name;
    if (files.text(path + "/type") != kEthernetType) continue;
    EthernetInterface interface {
      .name = name, .driver = files.link_name(path + "/device/driver")
    };
    interface.mtu_bytes =
        static_cast<std::uint32_t>(leading_number(files.text(path + "/mtu")).value_or(0));
    interfaces.push_back(std::move(interface));
  }
  return interfaces;
}

/// Without efa: its devices do not belong to the interface, and have no reliable connections (RC).
std::string_view provider_module(std::string_view driver) noexcept {
  constexpr std::pair<std::string_view, std::string_view> kProviders[] = {
      {"mlx5_core", "mlx5_ib"}, {"mlx4_core", "mlx4_ib"},  {"bnxt_en", "bnxt_re"},
      {"ice", "irdma"},         {"i40e", "irdma"},         {"cxgb4", "iw_cxgb4"},
      {"qede", "qedr"},         {"hns3", "hns_roce_hw_v2"}};
  for (const auto& [from, to] : kProviders)
    if (driver == from) return to;
  return {};
}

}  // namespace remora::apps::doctor
