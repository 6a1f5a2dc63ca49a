#pragma once

#include <remora/config/server_config.h>

#include "report.h"

namespace remora::config {

/// Rules about `auth`, `clients` and the access lists of regions.
void check_clients(const ServerConfig& config, Report& report);

}  // namespace remora::config
