#pragma once

/// The choice of the mechanism that isolates the clients of a server on each of its devices, with
/// its reason.

#include <string>
#include <string_view>
#include <vector>

#include <remora/config/server_config.h>
#include <remora/result.h>

#include "transport/device_states.h"
#include "transport/rdma/window_probe.h"

namespace remora::transport::rdma {

/// Names of the mechanisms.
inline constexpr std::string_view kRegistrations = "registrations";
inline constexpr std::string_view kWindows = "windows";
/// The subject of an error of this choice begins with this key.
inline constexpr std::string_view kProtectionKey = "transports.rdma_protection";

/// The choice, from the configuration and the findings. Errors: kUnsupported: the configuration
/// asks for windows, which do not isolate clients on the device; the subject names the failed check
/// and the value to configure instead.
[[nodiscard]] Result<DeviceProtection> protection_of(std::string device,
                                                     config::RdmaProtection wanted,
                                                     const WindowFindings& findings);

/// Chooses for each of `devices`, in that order. Tests the devices if the choice depends on the
/// result: **blocks** at most two seconds for each device, ten if the kernel implements the device;
/// each device is tested once in a process. Errors: those of protection_of(); the log then has a
/// line with all findings.
[[nodiscard]] Result<std::vector<DeviceProtection>> choose_protection(
    config::RdmaProtection wanted, const std::vector<verbs::Device>& devices);

/// Logs the choice and its reason; as a warning when clients are not isolated.
void log_protection(config::RdmaProtection wanted, const DeviceProtection& chosen);

}  // namespace remora::transport::rdma
