#include "doctor/config_check.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include <remora/config/load.h>
#include <remora/config/units.h>
#include <remora/host_port.h>

#include "doctor/checks.h"
#include "doctor/pins.h"

namespace remora::apps::doctor {
namespace {

using config::format_size;

Finding pins_finding(const config::ServerConfig& config) {
  Finding finding{.id = "config.memory"};
  finding.found = "the server takes " + format_size(config.pool.size_bytes) + " for its pool";
  if (config.transports.rdma == config::Availability::kOff) {
    finding.found += " and pins nothing: transports.rdma is off";
    return finding;
  }
  const PinnedBytes pins = pinned_by_server(config);
  finding.found += "; over rdma it pins " + format_size(pins.one_session) +
                   " for one session that has all of it open";
  if (config.transports.rdma_protection == config::RdmaProtection::kAuto)
    finding.found += ", and the pool but once where the device has memory windows that protect";
  return finding;
}

/// Whether the pool consists of reserved huge pages, which do not count as available memory.
bool takes_reserved_pages(const FileView& files, const config::Pool& pool) {
  switch (pool.huge_pages) {
    case config::HugePages::kNever: return false;
    case config::HugePages::kRequire:
    case config::HugePages::kRequire1GiB: return true;
    case config::HugePages::kTry: break;
  }
  return pool.size_bytes % config::kHugePageBytes == 0 && free_huge_bytes(files) >= pool.size_bytes;
}

Findings room_findings(const Machine& machine, const config::ServerConfig& config,
                       const config::CgroupFiles& groups) {
  Findings findings;
  // A running server has allocated its memory already.
  const bool may_run = server_may_run(machine, config);
  if (auto exceeded = config::exceeded_memory_limit(config, groups); exceeded && !may_run)
    findings.push_back(Finding{.id = "config.memory-limit",
                               .colour = Colour::kRed,
                               .found = std::move(*exceeded),
                               .why = "the server does not start",
                               .command = "systemctl edit the unit: MemoryMax=; a container: "
                                          "--memory; or lower pool.size"});
  const auto available = meminfo_bytes(machine.files, "MemAvailable");
  if (available && !may_run && !takes_reserved_pages(machine.files, config.pool) &&
      *available < config.pool.size_bytes)
    findings.push_back(Finding{
        .id = "config.memory-free",
        .colour = config.pool.populate ? Colour::kRed : Colour::kYellow,
        .found = "pool.size is " + format_size(config.pool.size_bytes) + ", and " +
                 format_size(*available) + " of this machine's memory is available",
        .why = config.pool.populate ? "the server touches every page at start, and the kernel ends "
                                      "programs when memory is used up"
                                    : "the kernel ends programs when clients use what is not there",
        .command = "free -h   # then end other programs, or lower pool.size"});
  return findings;
}

Finding address_finding(const Machine& machine, std::string id, const std::string& key,
                        const std::string& address, std::uint16_t port) {
  Finding finding{.id = std::move(id)};
  const std::string place = remora::detail::join_host_port(address, port);
  const int number = machine.calls.bind_error(address, port);
  if (number == 0) {
    finding.found = key + " " + place + " is free";
    return finding;
  }
  finding.colour = Colour::kRed;
  finding.found = key + " " + place + ": " + std::strerror(number);
  finding.why = "the server does not start";
  if (number == EADDRINUSE) {
    // Usually the server itself.
    finding.colour = Colour::kYellow;
    finding.why =
        "a server that runs already, or another program, has it; a second one does not "
        "start";
    finding.command = "ss -ltnp sport = :" + std::to_string(port);
  } else if (number == EADDRNOTAVAIL) {
    finding.why = "it is no address of this machine: the server does not start";
    finding.command = "ip -brief address";
  } else if (number == EACCES) {
    finding.command = "sudo sysctl net.ipv4.ip_unprivileged_port_start=" + std::to_string(port) +
                      "   # or another port";
  } else {
    finding.command = "ip -brief address; ss -ltn   # and correct " + key + " in the file";
  }
  return finding;
}

Findings device_findings(const config::ServerConfig& config,
                         const std::vector<DeviceView>& devices) {
  Findings findings;
  if (config.transports.rdma == config::Availability::kOff) return findings;
  std::string known;
  for (const DeviceView& device : devices) known += (known.empty() ? "" : ", ") + device.name;
  for (const std::string& name : config.transports.rdma_devices) {
    const bool there = std::any_of(devices.begin(), devices.end(),
                                   [&name](const DeviceView& each) { return each.name == name; });
    if (there) continue;
    const bool required = config.transports.rdma == config::Availability::kRequired;
    findings.push_back(
        Finding{.id = "config.device",
                .colour = required ? Colour::kRed : Colour::kYellow,
                .found = "transports.rdma_device names " + name + ", which is not there (" +
                         (known.empty() ? "there is none" : known) + ")",
                .why = required ? "the server does not start" : "the server does not use it",
                .command = "rdma link   # and correct the name in the file"});
  }
  return findings;
}

}  // namespace

Findings config_faults(const std::string& file, const config::Diagnostics& faults) {
  Finding finding{.id = "config", .colour = Colour::kRed};
  const std::size_t total = faults.size() + faults.dropped();
  finding.found = file + ": " + std::to_string(total) + (total == 1 ? " fault" : " faults");
  finding.why = "a server with this file does not start";
  finding.command = "remora config check " + file;
  for (const config::Diagnostic& fault : faults) finding.details.push_back(fault.to_string());
  return {finding};
}

Findings check_config(const Machine& machine, const config::ServerConfig& config,
                      const std::vector<DeviceView>& devices, const config::CgroupFiles& groups) {
  Findings findings;
  findings.push_back(Finding{.id = "config", .found = "the configuration has no faults"});
  findings.push_back(pins_finding(config));
  append(findings, room_findings(machine, config, groups));
  if (config.listen.port != 0)
    findings.push_back(address_finding(machine, "config.listen", "listen", config.listen.address,
                                       config.listen.port));
  if (config.metrics.address)
    if (const auto endpoint = config::parse_endpoint(*config.metrics.address))
      findings.push_back(address_finding(machine, "config.metrics", "metrics.address",
                                         endpoint->address, endpoint->port));
  append(findings, device_findings(config, devices));
  std::vector<std::string> secrets = config::exposed_secrets(config);
  const std::vector<std::string> files = config::exposed_secret_files(config);
  for (std::size_t i = 0; i < std::min(secrets.size(), files.size()); ++i)
    findings.push_back(Finding{.id = "config.secret",
                               .colour = Colour::kYellow,
                               .found = std::move(secrets[i]),
                               .why = "every user of this machine may read it",
                               .command = "chmod o-r " + files[i]});
  return findings;
}

}  // namespace remora::apps::doctor
