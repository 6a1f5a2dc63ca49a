#pragma once

/// The checks of `remora doctor`: each is a function of the state of a machine and of its purpose.
///
/// Thread safety: none keeps state. They block as reads of /proc and /sys do.

#include <cstdint>
#include <vector>

#include <remora/config/server_config.h>

#include "doctor/devices.h"
#include "doctor/finding.h"
#include "doctor/machine.h"

namespace remora::apps::doctor {

/// The purpose of the machine. Borrows the configuration.
struct Needs {
  const config::ServerConfig* server = nullptr;  ///< of this machine; null: clients only
  std::uint16_t port = 7471;                     ///< of the server, on this machine or another

  [[nodiscard]] bool needs_rdma() const noexcept {
    return server != nullptr && server->transports.rdma == config::Availability::kRequired;
  }
  [[nodiscard]] bool without_rdma() const noexcept {
    return server != nullptr && server->transports.rdma == config::Availability::kOff;
  }
};

/// The colour of a fault of rdma: red if rdma is required, or if there is a device that cannot be
/// used; yellow if the other transports remain.
[[nodiscard]] Colour rdma_fault(const Needs& needs, bool has_device) noexcept;

/// Whether the port of the server's file is in use: the server may run already, and have the memory
/// of its pool.
[[nodiscard]] bool server_may_run(const Machine& machine, const config::ServerConfig& config);

/// Whether this process runs in a container, as far as that is visible.
[[nodiscard]] bool in_container(const FileView& files);

// node_checks.cc
[[nodiscard]] Findings check_modules(const Machine& machine, const Needs& needs,
                                     const std::vector<DeviceView>& devices);
[[nodiscard]] Findings check_devices(const Machine& machine, const Needs& needs,
                                     const std::vector<DeviceView>& devices);
[[nodiscard]] Findings check_nodes(const Machine& machine, const Needs& needs,
                                   const std::vector<DeviceView>& devices);

// port_checks.cc
[[nodiscard]] Findings check_ports(const Machine& machine, const Needs& needs,
                                   const std::vector<DeviceView>& devices);
[[nodiscard]] Findings check_gids(const Machine& machine, const Needs& needs,
                                  const std::vector<DeviceView>& devices);
[[nodiscard]] Findings check_namespaces(const Machine& machine, const Needs& needs,
                                        const std::vector<DeviceView>& devices);

// memory_checks.cc
[[nodiscard]] Findings check_locked_memory(const Machine& machine, const Needs& needs,
                                           const std::vector<DeviceView>& devices);
[[nodiscard]] Findings check_lock_capability(const Machine& machine, const Needs& needs);
[[nodiscard]] Findings check_huge_pages(const Machine& machine, const Needs& needs);
/// Bytes of free reserved pages of 2 MiB, which a server uses for its pool by default.
[[nodiscard]] std::uint64_t free_huge_bytes(const FileView& files);
[[nodiscard]] Findings check_userfaultfd(const Machine& machine);
[[nodiscard]] Findings check_memory_nodes(const Machine& machine,
                                          const std::vector<DeviceView>& devices);

// host_checks.cc
[[nodiscard]] Findings check_open_files(const Machine& machine, const Needs& needs);
[[nodiscard]] Findings check_versions(const Machine& machine,
                                      const std::vector<DeviceView>& devices);
[[nodiscard]] Findings check_clock(const Machine& machine);
[[nodiscard]] Findings check_container(const Machine& machine,
                                       const std::vector<DeviceView>& devices);

// service_checks.cc
[[nodiscard]] Findings check_firewall(const Machine& machine, const Needs& needs,
                                      const std::vector<DeviceView>& devices);
[[nodiscard]] Findings check_sockets(const Machine& machine);
[[nodiscard]] Findings check_unit(const Machine& machine, const Needs& needs);

/// All of them, in the order of the list above.
[[nodiscard]] Findings check_machine(const Machine& machine, const Needs& needs,
                                     const std::vector<DeviceView>& devices);

}  // namespace remora::apps::doctor
