// Memory that may be pinned, huge pages, changes of mappings, memory nodes.

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <linux/capability.h>
#include <string>
#include <utility>

#include <remora/config/units.h>

#include "doctor/checks.h"
#include "doctor/pins.h"

namespace remora::apps::doctor {
namespace {

using config::format_size;

/// Whether this process is in the machine's first user namespace: in another one capabilities are
/// valid only there, and the kernel checks those of the machine when memory is pinned.
bool in_first_user_namespace(const FileView& files) {
  const std::string map = files.text("/proc/self/uid_map");
  if (map.empty()) return true;
  const std::size_t last = map.find_last_of(" \t");
  return leading_number(map) == 0U && last != std::string::npos &&
         leading_number(map.substr(last)) == 4294967295U;
}

bool may_pin_without_limit(const FileView& files) {
  return has_capability(files, "CapEff", CAP_IPC_LOCK) && in_first_user_namespace(files);
}

std::string pins_text(const Needs& needs, const PinnedBytes& pins) {
  if (needs.server == nullptr)
    return "a client with one session pins " + format_size(pins.one_session);
  std::string text = "the server pins " + format_size(pins.one_session) +
                     " for one session that has all of the pool open";
  if (pins.all_sessions > pins.one_session)
    text += ", and " +
            (pins.all_sessions == UINT64_MAX ? std::string{"more than any limit"}
                                             : format_size(pins.all_sessions)) +
            " for limits.sessions_max (" + std::to_string(needs.server->limits.sessions_max) +
            ") such sessions";
  return text;
}

std::string raise_command(const ResourceLimit& limit, std::uint64_t needed) {
  if (limit.hard == kUnlimited) return "ulimit -l unlimited";
  if (limit.hard >= needed) return "ulimit -l " + std::to_string(limit.hard >> 10U);
  return "echo '* - memlock unlimited' | sudo tee /etc/security/limits.d/90-remora.conf   # and "
         "log in again; over ssh it counts with 'UsePAM yes' in /etc/ssh/sshd_config; a unit: "
         "LimitMEMLOCK=infinity; a container: --ulimit memlock=-1";
}

/// Pages that the pool of a running server uses are not free, but not missing either.
Finding unless_it_runs(const Machine& machine, const config::ServerConfig& config,
                       Finding finding) {
  if (!server_may_run(machine, config)) return finding;
  finding.colour = Colour::kNotChecked;
  finding.found += "; the server's port is in use, so it may run and have its pages";
  finding.why.clear();
  finding.command.clear();
  return finding;
}

struct ReservedPages {
  std::uint64_t free = 0;
  std::uint64_t total = 0;
  std::string folder{};  ///< where they are reserved; empty: by vm.nr_hugepages
};

/// Pages of a size that is not the machine's default, which has a folder of its own.
ReservedPages reserved_in(const FileView& files, std::string folder) {
  const auto pages = [&](const char* file) {
    return leading_number(files.text(folder + file)).value_or(0);
  };
  const std::uint64_t free = pages("/free_hugepages"), total = pages("/nr_hugepages");
  return {free, total, std::move(folder)};
}

/// Pages of 2 MiB, which servers use. /proc/meminfo counts only pages of the default size, and
/// storage hosts are often booted with 1 GiB as the default.
ReservedPages reserved_huge_pages(const FileView& files) {
  if (meminfo_bytes(files, "Hugepagesize").value_or(config::kHugePageBytes) !=
      config::kHugePageBytes)
    return reserved_in(files, "/sys/kernel/mm/hugepages/hugepages-2048kB");
  const auto pages = [&](std::string_view name) {
    return leading_number(field(files, "/proc/meminfo", name)).value_or(0);
  };
  return {pages("HugePages_Free"), pages("HugePages_Total"), {}};
}

/// For a pool of 1 GiB pages, which are counted separately.
Finding check_gib_pages(const Machine& machine, const config::ServerConfig& config) {
  const std::uint64_t pool_bytes = config.pool.size_bytes;
  const auto [free, total, folder] =
      reserved_in(machine.files, "/sys/kernel/mm/hugepages/hugepages-1048576kB");
  Finding finding{.id = "huge-pages"};
  finding.found = "reserved pages of 1GiB: " + std::to_string(free) + " of " +
                  std::to_string(total) + " free; the pool takes " + format_size(pool_bytes);
  const std::uint64_t needed =
      pool_bytes / config::kGibPageBytes + (pool_bytes % config::kGibPageBytes == 0 ? 0 : 1);
  if (free >= needed) return finding;
  finding.colour = Colour::kRed;
  finding.why = "pool.huge_pages is '1GiB': the server does not start";
  finding.command = "echo " + std::to_string(total + needed - free) + " | sudo tee " + folder +
                    "/nr_hugepages   # or hugepagesz=1G hugepages=N for the kernel, at boot";
  return unless_it_runs(machine, config, std::move(finding));
}

std::vector<unsigned> memory_nodes(const FileView& files) {
  std::vector<unsigned> nodes;
  for (const std::string& name : files.list("/sys/devices/system/node"))
    if (name.starts_with("node"))
      if (const auto number = leading_number(std::string_view{name}.substr(4)))
        nodes.push_back(static_cast<unsigned>(*number));
  std::sort(nodes.begin(), nodes.end());
  return nodes;
}

/// The distance of two nodes as the firmware reports it: 10 is the node itself. 0: not reported.
std::uint64_t node_distance(const FileView& files, const std::vector<unsigned>& nodes,
                            unsigned from, unsigned to) {
  const std::string text =
      files.text("/sys/devices/system/node/node" + std::to_string(from) + "/distance");
  std::string_view rest = text;
  for (const unsigned node : nodes) {
    const std::size_t begin = rest.find_first_not_of(' ');
    if (begin == std::string_view::npos) return 0;
    rest.remove_prefix(begin);
    if (node == to) return leading_number(rest).value_or(0);
    rest.remove_prefix(std::min(rest.find(' '), rest.size()));
  }
  return 0;
}

Finding node_finding_of(const FileView& files, const std::vector<unsigned>& nodes,
                        const DeviceView& device) {
  Finding finding{.id = "memory-node"};
  const auto node = static_cast<unsigned>(device.memory_node);
  const std::string name = "/sys/devices/system/node/node" + std::to_string(node) + "/cpulist";
  const std::string allowed = status_field(files, "Cpus_allowed_list");
  const bool near = allowed.empty() || lists_meet(allowed, files.text(name));
  const std::string memory = status_field(files, "Mems_allowed_list");
  const bool memory_near = memory.empty() || list_has(memory, node);
  finding.found = device.name + " is on memory node " + std::to_string(node);
  for (const unsigned other : nodes)
    if (const auto distance = node_distance(files, nodes, node, other); distance > 10)
      finding.found +=
          ", distance " + std::to_string(distance) + " to node " + std::to_string(other);
  if (near && memory_near) return finding;
  finding.colour = Colour::kYellow;
  finding.found +=
      near ? "; this process may use memory of the nodes " + memory + " alone"
           : "; this process may use processors " + allowed + " alone, none of which is there";
  finding.why = "each byte and each doorbell crosses from one node to the other";
  finding.command = "numactl --cpunodebind=" + std::to_string(node) +
                    " --membind=" + std::to_string(node) + " COMMAND   # or AllowedCPUs= of a unit";
  return finding;
}

}  // namespace

Findings check_locked_memory(const Machine& machine, const Needs& needs,
                             const std::vector<DeviceView>& devices) {
  if (needs.without_rdma()) return {};
  const ResourceLimit limit = machine.calls.locked_memory();
  const PinnedBytes pins =
      needs.server == nullptr ? pinned_by_client() : pinned_by_server(*needs.server);
  Finding finding{.id = "memlock"};
  finding.found = "locked memory: soft limit " + limit_text(limit.soft) + ", hard limit " +
                  limit_text(limit.hard) + "; " + pins_text(needs, pins);
  if (may_pin_without_limit(machine.files)) {
    finding.found += "; CAP_IPC_LOCK lifts the limit for this user";
    return {finding};
  }
  if (limit.soft >= pins.all_sessions) return {finding};
  if (devices.empty() && !needs.needs_rdma()) {
    finding.found += "; there is no RDMA device that would need it";
    return {finding};
  }
  const bool too_small = limit.soft < pins.one_session;
  finding.colour = too_small ? rdma_fault(needs, true) : Colour::kYellow;
  finding.why = too_small ? "memory that is registered with a device is pinned: opening a region "
                            "over rdma fails (kMemlock)"
                          : "sessions beyond that cannot open their regions over rdma (kMemlock)";
  finding.command = raise_command(limit, too_small ? pins.one_session : pins.all_sessions);
  return {finding};
}

Findings check_lock_capability(const Machine& machine, const Needs& needs) {
  if (needs.without_rdma()) return {};
  const FileView& files = machine.files;
  const bool effective = has_capability(files, "CapEff", CAP_IPC_LOCK);
  const bool bounded = has_capability(files, "CapBnd", CAP_IPC_LOCK);
  if (machine.calls.locked_memory().soft == kUnlimited) return {};
  Finding finding{.id = "ipc-lock", .colour = Colour::kYellow};
  if (effective && !in_first_user_namespace(files)) {
    finding.found = "CAP_IPC_LOCK is effective in a user namespace only";
    finding.why =
        "the kernel asks for the machine's own capability where memory is pinned, so the "
        "limit of locked memory applies";
    finding.command = "ulimit -l unlimited outside of it; a container: --ulimit memlock=-1";
    return {finding};
  }
  if (!effective && bounded && !machine.is_root() && in_container(files)) {
    finding.found =
        "CAP_IPC_LOCK was given to this container, and a user other than root does not "
        "have it";
    finding.why = "the limit of locked memory applies";
    finding.command = "start the container with --ulimit memlock=-1";
    return {finding};
  }
  return {};
}

std::uint64_t free_huge_bytes(const FileView& files) {
  return reserved_huge_pages(files).free * config::kHugePageBytes;
}

Findings check_huge_pages(const Machine& machine, const Needs& needs) {
  if (needs.server != nullptr && needs.server->pool.huge_pages == config::HugePages::kRequire1GiB)
    return {check_gib_pages(machine, *needs.server)};
  const ReservedPages pages = reserved_huge_pages(machine.files);
  const std::uint64_t free_bytes = pages.free * config::kHugePageBytes;
  Finding finding{.id = "huge-pages"};
  finding.found = "reserved huge pages: " + std::to_string(pages.free) + " of " +
                  std::to_string(pages.total) + " free (" + format_size(free_bytes) + ")";
  if (needs.server == nullptr || needs.server->pool.huge_pages == config::HugePages::kNever)
    return {finding};
  const std::uint64_t pool = needs.server->pool.size_bytes;
  finding.found += "; the pool takes " + format_size(pool);
  if (free_bytes >= pool) return {finding};
  const bool required = needs.server->pool.huge_pages == config::HugePages::kRequire;
  const std::uint64_t missing =
      (pool - free_bytes + config::kHugePageBytes - 1) / config::kHugePageBytes;
  finding.colour = required ? Colour::kRed : Colour::kYellow;
  finding.why = required
                    ? "pool.huge_pages is 'require': the server does not start"
                    : "the pool is made of ordinary pages: the NIC and the processor translate "
                      "more addresses";
  const std::string wanted = std::to_string(pages.total + missing);
  finding.command =
      (pages.folder.empty() ? "sudo sysctl vm.nr_hugepages=" + wanted
                            : "echo " + wanted + " | sudo tee " + pages.folder + "/nr_hugepages") +
      (required ? "" : "   # or 'huge_pages: never' in the file");
  return {unless_it_runs(machine, *needs.server, std::move(finding))};
}

Findings check_userfaultfd(const Machine& machine) {
  const int number = machine.calls.userfaultfd_error();
  Finding finding{.id = "userfaultfd"};
  if (number == 0) {
    finding.found = "userfaultfd works";
    return {finding};
  }
  const bool filtered = status_field(machine.files, "Seccomp") == "2";
  finding.colour = Colour::kYellow;
  finding.found = std::string{"userfaultfd does not work: "} + std::strerror(number) +
                  (filtered ? "; a seccomp filter is active" : "");
  finding.why =
      "the engine cannot notice changed mappings, so it keeps no registrations of memory "
      "that is not registered by the application, and copies it";
  if (filtered)
    finding.command = "start the container with a seccomp profile that allows userfaultfd";
  else if (number == EPERM || number == EACCES)
    finding.command = "sudo sysctl vm.unprivileged_userfaultfd=1";
  else
    finding.command = "grep USERFAULTFD /boot/config-$(uname -r)   # Linux 5.11 or later has it";
  return {finding};
}

Findings check_memory_nodes(const Machine& machine, const std::vector<DeviceView>& devices) {
  const std::vector<unsigned> nodes = memory_nodes(machine.files);
  if (nodes.size() < 2)
    return {Finding{.id = "memory-node", .found = "the machine has one memory node"}};
  Findings findings;
  for (const DeviceView& device : devices)
    if (device.memory_node >= 0) findings.push_back(node_finding_of(machine.files, nodes, device));
  if (findings.empty())
    findings.push_back(Finding{.id = "memory-node",
                               .found = "the machine has " + std::to_string(nodes.size()) +
                                        " memory nodes, and no RDMA device says on which it is"});
  return findings;
}

}  // namespace remora::apps::doctor
