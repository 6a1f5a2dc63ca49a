#pragma once

#include <remora/config/server_config.h>

#include "report.h"

namespace remora::config {

/// The rules between the keys of `cluster`.
void check_cluster(const ServerConfig& config, Report& report);

}  // namespace remora::config
