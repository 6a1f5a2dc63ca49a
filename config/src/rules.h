#pragma once

/// Rules of a configuration beyond the range of each key.

#include <cstddef>
#include <string>

#include <remora/config/server_config.h>

#include "report.h"

namespace remora::config {

/// `regions[3]`
std::string region_path(std::size_t index);

/// Every rule between keys. Skips rules about keys that `report` knows to be bad.
void check_rules(const ServerConfig& config, Report& report);

}  // namespace remora::config
