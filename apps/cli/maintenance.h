#pragma once

/// Options, progress and results of long work on volumes.

#include <chrono>
#include <cstdint>
#include <string>

#include <remora/volume/maintenance.h>

#include "cli/command.h"

namespace remora::apps {

struct MaintenanceArguments {
  bool steal = false;
  std::uint64_t bytes_per_second_max = 0;
  std::uint32_t groups_at_once = volume::MaintenanceOptions{}.groups_at_once;
};

/// --steal, --bandwidth and --parallel.
void add_maintenance_options(CLI::App* command, MaintenanceArguments& arguments);

/// The options of the work: its progress is drawn, and a signal ends it. `what`: "repair disk".
[[nodiscard]] volume::MaintenanceOptions maintenance_options(const Globals& globals,
                                                             const MaintenanceArguments& arguments,
                                                             const std::string& what);

/// Prints the result. What is left makes the command fail.
Outcome tell_report(const Globals& globals, const volume::Managed<volume::MaintenanceReport>& done,
                    const std::string& context);

}  // namespace remora::apps
