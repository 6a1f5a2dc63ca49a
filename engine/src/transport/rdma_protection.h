#pragma once

/// What keeps the clients of a server apart on each of its devices, and why just that.

#include <string>
#include <vector>

#include <remora/config/server_config.h>
#include <remora/result.h>

#include "transport/transport.h"
#include "transport/window_probe.h"

namespace remora::transport::rdma {

/// From what was asked for, and what was found.
[[nodiscard]] DeviceProtection protection_of(std::string device, config::RdmaProtection wanted,
                                             const WindowFindings& findings);

/// For each of `devices`, by name. Asks the devices where the answer depends on them: **blocks**
/// for two seconds each at most, ten where the kernel does the work; a device answers once in a
/// process. Logs each choice.
[[nodiscard]] std::vector<DeviceProtection> choose_protection(
    config::RdmaProtection wanted, const std::vector<std::string>& devices);

}  // namespace remora::transport::rdma
