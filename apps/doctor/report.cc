#include "doctor/report.h"

#include <array>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <ostream>
#include <sstream>
#include <utility>

#include <remora/config/printable.h>
#include <remora/config/units.h>

namespace remora::apps::doctor {
namespace {

using Json = nlohmann::ordered_json;
using config::format_duration;
using config::printable;

constexpr std::array kColours{Colour::kGreen, Colour::kNotChecked, Colour::kYellow, Colour::kRed};

void print_finding(std::ostream& out, const Finding& finding) {
  constexpr std::size_t kColourWidth = 12;
  std::string colour{to_string(finding.colour)};
  colour.resize(kColourWidth, ' ');
  out << colour << finding.id << ": " << printable(finding.found) << '\n';
  const std::string indent(kColourWidth, ' ');
  for (const std::string& line : finding.details) out << indent << "  " << printable(line) << '\n';
  if (!finding.why.empty()) out << indent << "why: " << printable(finding.why) << '\n';
  if (!finding.command.empty()) out << indent << "do:  " << printable(finding.command) << '\n';
}

Json finding_json(const Finding& finding) {
  return Json{{"id", finding.id},
              {"colour", to_string(finding.colour)},
              {"found", finding.found},
              {"why", finding.why},
              {"command", finding.command},
              {"details", finding.details},
              {"root_adds", finding.root_adds}};
}

void print_device(std::ostream& out, const DeviceView& device) {
  out << device.name << ": " << (device.software ? "software" : "hardware") << ", model "
      << (device.model.empty() ? "unknown" : device.model) << ", firmware "
      << (device.firmware.empty() ? "unknown" : device.firmware) << ", node "
      << (device.uverbs.empty() ? "none" : device.uverbs) << ", memory node " << device.memory_node
      << '\n';
  for (const PortView& port : device.ports) {
    out << "  port " << +port.number << ": " << port.state << " (" << port.physical_state << "), "
        << port.link_layer << ", " << port.rate << ", MTU " << port.active_mtu_bytes << " of "
        << port.max_mtu_bytes << '\n';
    for (const GidRow& row : port.gids)
      out << "    gid " << row.entry.index << ' ' << verbs::to_string(row.entry.type) << ' '
          << row.entry.gid.to_string() << ' ' << row.interface << '\n';
  }
}

/// Selected values only: other values are not in a report.
void print_config(std::ostream& out, const config::ServerConfig& config) {
  const config::Transports& transports = config.transports;
  const config::Limits& limits = config.limits;
  out << "listen: " << config.listen.address << ' ' << config.listen.port << '\n'
      << "transports: rdma " << config::to_string(transports.rdma) << ", shm "
      << config::to_string(transports.shm) << ", tcp " << config::to_string(transports.tcp)
      << ", rdma_protection " << config::to_string(transports.rdma_protection) << '\n'
      << "pool: size " << config::format_size(config.pool.size_bytes) << ", piece "
      << config::format_size(config.pool.piece_bytes) << ", huge_pages "
      << config::to_string(config.pool.huge_pages) << ", populate "
      << (config.pool.populate ? "true" : "false") << '\n'
      << "regions: " << config.regions.size() << ", clients: " << config.clients.size()
      << ", auth: " << (config.auth ? config::to_string(*config.auth) : "not said") << '\n'
      << "limits: sessions_max " << limits.sessions_max << ", regions_max " << limits.regions_max
      << ", session_memory " << config::format_size(limits.session_memory_bytes)
      << ", session_lease " << format_duration(limits.session_lease) << ", session_keep "
      << format_duration(limits.session_keep) << '\n';
}

void print_file(std::ostream& out, const FileView& files, const std::string& path) {
  const auto text = files.read(path);
  out << "-- " << path << '\n' << (text ? *text : std::string{"(cannot be read)"}) << '\n';
}

/// Modules of RDMA only: others describe the machine and do not help.
void print_modules(std::ostream& out, const FileView& files) {
  out << "-- modules\n";
  for (const std::string& name : files.list("/sys/module"))
    for (const std::string_view part : {"ib_", "rdma", "mlx", "iw_", "bnxt", "irdma", "efa", "siw"})
      if (name.starts_with(part)) {
        out << name << ' ' << files.text("/sys/module/" + name + "/version") << '\n';
        break;
      }
}

}  // namespace

void print_findings(std::ostream& out, const Findings& findings) {
  for (const Finding& finding : findings) print_finding(out, finding);
  std::string counts;
  for (const Colour colour : kColours)
    if (const std::size_t number = count(findings, colour); number != 0)
      counts += (counts.empty() ? "" : ", ") + std::to_string(number) + " " +
                std::string{to_string(colour)};
  out << counts << '\n';
  for (const Finding& finding : findings)
    if (!finding.root_adds.empty())
      out << "as root, it also checks " << printable(finding.root_adds) << '\n';
}

nlohmann::ordered_json findings_json(const Findings& findings) {
  Json list = Json::array();
  Json root_adds = Json::array();
  for (const Finding& finding : findings) {
    list.push_back(finding_json(finding));
    if (!finding.root_adds.empty()) root_adds.push_back(finding.root_adds);
  }
  Json counts = Json::object();
  for (const Colour colour : kColours)
    counts[std::string{to_string(colour)}] = count(findings, colour);
  return Json{{"colour", to_string(worst(findings))},
              {"findings", std::move(list)},
              {"counts", std::move(counts)},
              {"root_adds", std::move(root_adds)}};
}

std::string bundle_text(const Machine& machine, const Needs& needs,
                        const std::vector<DeviceView>& devices, const Findings& findings,
                        std::string_view version) {
  std::ostringstream out;
  out << "remora " << version << "\n\n== findings\n";
  print_findings(out, findings);
  out << "\n== devices\n";
  for (const DeviceView& device : devices) print_device(out, device);
  if (devices.empty()) out << "none\n";
  for (const EthernetInterface& interface : read_interfaces(machine.files))
    out << "interface " << interface.name << ", driver "
        << (interface.driver.empty() ? "none" : interface.driver) << ", MTU " << interface.mtu_bytes
        << '\n';
  if (needs.server != nullptr) {
    out << "\n== configuration\n";
    print_config(out, *needs.server);
  }
  out << "\n== system\n";
  for (const char* const path :
       {"/proc/version", "/etc/os-release", "/proc/self/limits", "/proc/self/status",
        "/proc/self/uid_map", "/proc/meminfo", "/proc/1/cgroup"})
    print_file(out, machine.files, path);
  print_modules(out, machine.files);
  return out.str();
}

}  // namespace remora::apps::doctor
