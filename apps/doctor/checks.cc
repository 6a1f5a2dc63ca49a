#include "doctor/checks.h"

#include <cerrno>

namespace remora::apps::doctor {

Colour rdma_fault(const Needs& needs, bool has_device) noexcept {
  if (needs.without_rdma()) return Colour::kGreen;
  return needs.needs_rdma() || has_device ? Colour::kRed : Colour::kYellow;
}

bool server_may_run(const Machine& machine, const config::ServerConfig& config) {
  return config.listen.port != 0 &&
         machine.calls.bind_error(config.listen.address, config.listen.port) == EADDRINUSE;
}

Findings check_machine(const Machine& machine, const Needs& needs,
                       const std::vector<DeviceView>& devices) {
  Findings all;
  append(all, check_modules(machine, needs, devices));
  append(all, check_devices(machine, needs, devices));
  append(all, check_nodes(machine, needs, devices));
  append(all, check_ports(machine, needs, devices));
  append(all, check_gids(machine, needs, devices));
  append(all, check_namespaces(machine, needs, devices));
  append(all, check_locked_memory(machine, needs, devices));
  append(all, check_lock_capability(machine, needs));
  append(all, check_huge_pages(machine, needs));
  append(all, check_userfaultfd(machine));
  append(all, check_memory_nodes(machine, devices));
  append(all, check_open_files(machine, needs));
  append(all, check_versions(machine, devices));
  append(all, check_clock(machine));
  append(all, check_container(machine, devices));
  append(all, check_firewall(machine, needs, devices));
  append(all, check_sockets(machine));
  append(all, check_unit(machine, needs));
  return all;
}

}  // namespace remora::apps::doctor
