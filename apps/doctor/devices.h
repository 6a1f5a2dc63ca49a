#pragma once

/// RDMA devices as the kernel shows them in /sys, and the properties that only an open device has.

#include <cstdint>
#include <string>
#include <vector>

#include <remora/verbs/gid.h>

#include "doctor/machine.h"

namespace remora::apps::doctor {

struct GidRow {
  verbs::GidEntry entry{};
  std::string interface {};  ///< the netdev it belongs to; empty: none, or it cannot be seen
};

struct PortView {
  std::uint8_t number = 0;             ///< from 1
  std::string state{};                 ///< "ACTIVE", "DOWN"
  std::string physical_state{};        ///< "LinkUp", "Disabled"
  std::string link_layer{};            ///< "Ethernet", "InfiniBand"
  std::string rate{};                  ///< "100 Gb/sec (4X EDR)"
  std::uint32_t active_mtu_bytes = 0;  ///< 0: the device was not opened
  std::uint32_t max_mtu_bytes = 0;
  std::vector<GidRow> gids{};  ///< without empty rows
};

struct DeviceView {
  std::string name{};      ///< "mlx5_0"
  std::string uverbs{};    ///< "uverbs0"; empty: ib_uverbs does not serve it
  bool software = false;   ///< rxe or siw
  std::string firmware{};  ///< empty: not reported
  std::string model{};     ///< hca_type, or the board's name
  int memory_node = -1;    ///< -1: not reported, as on machines with one node
  std::vector<PortView> ports{};
  std::string open_error{};  ///< why verbs could not open it; empty: it could, or did not try
};

/// Sorted by name. Reads /sys/class/infiniband and /sys/class/infiniband_verbs.
[[nodiscard]] std::vector<DeviceView> read_devices(const FileView& files);

/// Opens each device by verbs and fills in the MTUs, or `open_error`. Only for this machine.
void ask_verbs(std::vector<DeviceView>& devices);

/// A network interface of Ethernet.
struct EthernetInterface {
  std::string name{};
  std::string driver{};  ///< of its hardware; empty: a virtual one
  std::uint32_t mtu_bytes = 0;
};
[[nodiscard]] std::vector<EthernetInterface> read_interfaces(const FileView& files);

/// The kernel module that makes an RDMA device of hardware with `driver` ("mlx5_core": "mlx5_ib");
/// empty: there is none.
[[nodiscard]] std::string_view provider_module(std::string_view driver) noexcept;

}  // namespace remora::apps::doctor
