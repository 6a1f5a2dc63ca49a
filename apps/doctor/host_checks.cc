// The process's limits, versions, the clock, and restrictions of a container.

#include <algorithm>
#include <linux/capability.h>
#include <string>
#include <string_view>

#include "common/descriptors_needed.h"
#include "doctor/checks.h"

namespace remora::apps::doctor {
namespace {

/// Descriptors of a client with a few sessions of eight lanes.
constexpr std::uint64_t kClientDescriptors = 256;

/// The path of a library that this process has loaded; empty: it has not.
std::string loaded_library(const FileView& files, std::string_view name) {
  const std::string maps = files.text("/proc/self/maps");
  const std::size_t at = maps.find("/" + std::string{name});
  if (at == std::string::npos) return {};
  const std::size_t line = maps.rfind('\n', at);
  const std::size_t from = maps.find('/', line == std::string::npos ? 0 : line);
  const std::size_t end = std::min(maps.find('\n', at), maps.size());
  return maps.substr(from, end - from);
}

/// The version of rdma-core: libibverbs.so.1.14.44.0 belongs to rdma-core 44.
std::string rdma_core_version(const std::string& library) {
  std::size_t at = library.find(".so.");
  if (at == std::string::npos) return {};
  at += std::string_view{".so."}.size();
  for (int i = 0; i < 2; ++i) {
    at = library.find('.', at);
    if (at == std::string::npos) return {};
    ++at;
  }
  return library.substr(at, library.find('.', at) - at);
}

Finding rdma_core_finding(const FileView& files) {
  Finding finding{.id = "rdma-core"};
  const std::string library = loaded_library(files, "libibverbs.so.");
  const std::string version = rdma_core_version(library);
  finding.found =
      version.empty() ? "the version of rdma-core is not known" : "rdma-core " + version;
  const bool outside =
      !library.empty() && !library.starts_with("/usr/lib") && !library.starts_with("/lib");
  const bool vendor = files.exists("/sys/module/mlx_compat");
  if (!outside && !vendor) return finding;
  finding.colour = Colour::kYellow;
  finding.found += outside ? "; libibverbs is " + library
                           : "; the kernel's RDMA drivers are those of MLNX_OFED (mlx_compat)";
  finding.why = "drivers and libraries of two origins may not fit: devices then cannot be opened";
  finding.command = outside
                        ? "echo $LD_LIBRARY_PATH; ldconfig -p | grep -e libibverbs -e librdmacm"
                        : "ofed_info -s; apt list --installed | grep -e rdma-core -e libibverbs";
  return finding;
}

/// Whether this process is in another PID namespace than the machine's first one. A container's
/// /proc shows only its own process ids, and the first namespace has the same inode on every kernel
/// (PROC_PID_INIT_INO).
bool in_process_namespace(const FileView& files) {
  const std::string own = files.link("/proc/self/ns/pid");
  return !own.empty() && own != "pid:[4026531836]";
}

bool has_node_folder(const FileView& files) { return files.exists("/dev/infiniband"); }

std::string node_options(const std::vector<DeviceView>& devices) {
  std::string text = "--device /dev/infiniband/rdma_cm";
  for (const DeviceView& device : devices)
    if (!device.uverbs.empty()) text += " --device /dev/infiniband/" + device.uverbs;
  return text;
}

}  // namespace

bool in_container(const FileView& files) {
  if (files.exists("/.dockerenv") || files.exists("/run/.containerenv") ||
      files.exists("/run/systemd/container"))
    return true;
  const std::string groups = files.text("/proc/1/cgroup");
  for (const std::string_view name : {"docker", "kubepods", "containerd", "libpod", "lxc"})
    if (groups.find(name) != std::string::npos) return true;
  return false;
}

Findings check_open_files(const Machine& machine, const Needs& needs) {
  const ResourceLimit limit = machine.calls.open_files();
  const std::uint64_t needed =
      needs.server == nullptr ? kClientDescriptors : descriptors_needed(needs.server->limits);
  // The server raises its soft limit to the hard one.
  const std::uint64_t allowed = needs.server == nullptr ? limit.soft : limit.hard;
  const auto text = [](std::uint64_t value) {
    return value == kUnlimited ? std::string{"unlimited"} : std::to_string(value);
  };
  Finding finding{.id = "open-files"};
  finding.found = "open files: soft limit " + text(limit.soft) + ", hard limit " +
                  text(limit.hard) + "; " +
                  (needs.server == nullptr ? "a client" : "a server with these limits") +
                  " may need " + std::to_string(needed);
  if (allowed >= needed) return {finding};
  finding.colour = Colour::kYellow;
  finding.why = needs.server == nullptr ? "sessions and lanes beyond the limit fail"
                                        : "clients beyond the limit are turned away";
  finding.command =
      "ulimit -n " + std::to_string(needed) +
      "   # a unit: LimitNOFILE=; a container: --ulimit nofile=" + std::to_string(needed);
  return {finding};
}

Findings check_versions(const Machine& machine, const std::vector<DeviceView>& devices) {
  Findings findings;
  findings.push_back(Finding{.id = "kernel",
                             .found = "Linux " + machine.files.text("/proc/sys/kernel/osrelease")});
  findings.push_back(rdma_core_finding(machine.files));
  for (const DeviceView& device : devices)
    if (!device.software && device.firmware.empty())
      findings.push_back(Finding{.id = "firmware",
                                 .colour = Colour::kNotChecked,
                                 .found = device.name + " does not say its firmware's version"});
  return findings;
}

Findings check_clock(const Machine& machine) {
  const std::string folder = "/sys/devices/system/clocksource/clocksource0/";
  const std::string source = machine.files.text(folder + "current_clocksource");
  Finding finding{.id = "clock"};
  if (source.empty()) {
    finding.colour = Colour::kNotChecked;
    finding.found = "the clock source is not known";
    return {finding};
  }
  finding.found = "clock source " + source;
  for (const std::string_view slow : {"hpet", "acpi_pm", "jiffies", "xen", "refined-jiffies"}) {
    if (source != slow) continue;
    finding.colour = Colour::kYellow;
    finding.why =
        "each reading of the clock is a system call or an access to a device: operations "
        "take longer";
    const bool has_tsc =
        machine.files.text(folder + "available_clocksource").find("tsc") != std::string::npos;
    finding.command = has_tsc ? "echo tsc | sudo tee " + folder + "current_clocksource"
                              : "sudo dmesg | grep -i -e tsc -e clocksource";
  }
  return {finding};
}

Findings check_container(const Machine& machine, const std::vector<DeviceView>& devices) {
  const FileView& files = machine.files;
  if (!in_container(files)) return {Finding{.id = "container", .found = "not in a container"}};
  Findings findings{Finding{.id = "container", .found = "in a container"}};
  if (!devices.empty() && !has_node_folder(files))
    findings.push_back(Finding{
        .id = "container.devices",
        .colour = Colour::kRed,
        .found = "the container has no /dev/infiniband, and the kernel has " + devices.front().name,
        .why = "rdma cannot be used in this container",
        .command = "start the container with " + node_options(devices)});
  if (status_field(files, "Seccomp") == "2") findings.front().found += ", with a seccomp filter";
  if (!status_field(files, "CapBnd").empty() && !has_capability(files, "CapBnd", CAP_IPC_LOCK))
    findings.front().found += ", without CAP_IPC_LOCK";
  if (in_process_namespace(files)) {
    findings.push_back(Finding{
        .id = "container.processes",
        .colour = Colour::kYellow,
        .found = "the container has process identifiers of its own",
        .why = "over shm, on kernels before 6.5, the server cannot see when a client of another "
               "namespace has ended: a fence then waits for limits.session_keep",
        .command = "share the namespace of the server's container: --pid container:SERVER"});
  }
  return findings;
}

}  // namespace remora::apps::doctor
