#pragma once

/// What keeps the clients of a server apart on each of its devices, and why just that.

#include <string>
#include <string_view>
#include <vector>

#include <remora/config/server_config.h>
#include <remora/result.h>

#include "transport/device_states.h"
#include "transport/rdma/window_probe.h"

namespace remora::transport::rdma {

/// The mechanisms.
inline constexpr std::string_view kRegistrations = "registrations";
inline constexpr std::string_view kWindows = "windows";
/// What an error of this choice has as the beginning of its subject.
inline constexpr std::string_view kProtectionKey = "transports.rdma_protection";

/// From what was asked for, and what was found. Errors: kUnsupported: windows were asked for, and
/// do not keep clients apart; the subject says which check says so, and what to write instead.
[[nodiscard]] Result<DeviceProtection> protection_of(std::string device,
                                                     config::RdmaProtection wanted,
                                                     const WindowFindings& findings);

/// For each of `devices`, in that order. Asks them where the answer depends on them: **blocks**
/// for two seconds each at most, ten where the kernel does the work; a device answers once in a
/// process. Errors: those of protection_of(), with a line in the log that says all that was found.
[[nodiscard]] Result<std::vector<DeviceProtection>> choose_protection(
    config::RdmaProtection wanted, const std::vector<verbs::Device>& devices);

/// Logs what was chosen, and why; a warning where clients are not kept apart.
void log_protection(config::RdmaProtection wanted, const DeviceProtection& chosen);

}  // namespace remora::transport::rdma
