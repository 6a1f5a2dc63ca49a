#pragma once

/// Whether a server with a configuration starts on this machine, and the resources that it needs.

#include <string>
#include <vector>

#include <remora/config/diagnostics.h>
#include <remora/config/memory_limit.h>
#include <remora/config/server_config.h>

#include "doctor/devices.h"
#include "doctor/finding.h"
#include "doctor/machine.h"

namespace remora::apps::doctor {

/// One finding for all faults of a file.
[[nodiscard]] Findings config_faults(const std::string& file, const config::Diagnostics& faults);

/// The checks of a file without faults that depend on the machine. Blocks; binds the server's port
/// for a moment.
[[nodiscard]] Findings check_config(const Machine& machine, const config::ServerConfig& config,
                                    const std::vector<DeviceView>& devices,
                                    const config::CgroupFiles& groups = {});

}  // namespace remora::apps::doctor
