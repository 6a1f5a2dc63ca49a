#pragma once

/// The counters of a device, as its driver shows them in sysfs: retransmissions, refusals,
/// congestion marks, bytes. Needs no open device and no privilege. No function keeps a file open.
///
/// Thread safety: any thread.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <remora/result.h>

namespace remora::verbs {

/// The folder in which the kernel shows RDMA devices.
inline constexpr std::string_view kDevicesFolder = "/sys/class/infiniband";

/// One counter of one port, under the driver's own name.
struct PortCounter {
  std::uint8_t port = 0;  ///< from 1
  std::string name;       ///< "out_of_sequence"
  std::string path;       ///< of the file that read_port_counter() reads
};

/// All counters of all ports of `device` ("mlx5_0"), by port and name; if a name is in both
/// `hw_counters` and `counters`, the former. Empty if the driver shows none. Settings among the
/// counters (`lifespan`) are left out. Tests pass another `folder` than kDevicesFolder. Blocks for
/// some file-system calls. Errors: kInvalidArgument (a name that is no file's); kNotFound (no such
/// device, or none of its ports); kSystem (errno kept).
Result<std::vector<PortCounter>> port_counters(std::string_view device,
                                               std::string_view folder = kDevicesFolder);

/// The present value of the counter. Blocks while the driver asks its device. Errors: kNotFound
/// (the device has gone); kUnsupported (the driver shows it and cannot read it); kSystem (errno
/// kept).
Result<std::uint64_t> read_port_counter(const PortCounter& counter);

}  // namespace remora::verbs
