#include "cli/maintenance.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/cluster_uri.h"
#include "cli/human.h"
#include "cli/interrupt.h"
#include "cli/progress.h"

namespace remora::apps {
namespace {

std::string counted(std::uint64_t count, const std::string& one, const std::string& many) {
  return std::to_string(count) + " " + (count == 1 ? one : many);
}

Json json_of(const volume::MaintenanceReport& report) {
  return Json{{"groups", report.groups},
              {"members_added", report.members_added},
              {"members_moved", report.members_moved},
              {"bytes_copied", report.bytes_copied},
              {"regions_removed", report.regions_removed},
              {"cleared", report.cleared},
              {"left", report.left}};
}

void print_report(const volume::MaintenanceReport& report) {
  if (report.cleared) {
    std::cout << "cleared what an interrupted command had left; there is no volume any more\n";
    return;
  }
  std::cout << counted(report.groups, "group", "groups") << ": "
            << counted(report.members_added, "copy", "copies") << " made, " << report.members_moved
            << " moved, " << human_bytes(static_cast<double>(report.bytes_copied)) << " copied, "
            << counted(report.regions_removed, "region", "regions") << " removed\n";
  for (const std::string& sentence : report.left) std::cout << "not done: " << sentence << '\n';
}

}  // namespace

void add_maintenance_options(CLI::App* command, MaintenanceArguments& arguments) {
  command->add_flag("--steal", arguments.steal, "Take the claim of a program that is alive");
  add_size(command, "--bandwidth", arguments.bytes_per_second_max,
           "Copy at most so many bytes in a second, all groups together (no limit)");
  command
      ->add_option(
          "--parallel", arguments.groups_at_once,
          "Groups whose copies are made at once (" + std::to_string(arguments.groups_at_once) + ")")
      ->check(CLI::Range(1U, volume::kGroupsAtOnceMax))
      ->type_name("N");
}

volume::MaintenanceOptions maintenance_options(const Globals& globals,
                                               const MaintenanceArguments& arguments,
                                               const std::string& what) {
  volume::MaintenanceOptions options;
  options.steal = arguments.steal;
  options.bytes_per_second_max = arguments.bytes_per_second_max;
  options.groups_at_once = arguments.groups_at_once;
  options.step_limit =
      std::max<std::chrono::nanoseconds>(globals.timeout, std::chrono::seconds{30});
  catch_interrupts();
  options.stop = [] { return interrupted() != 0; };
  // The total grows while the work finds more to do.
  const auto line = std::make_shared<std::unique_ptr<Progress>>();
  const auto total = std::make_shared<std::uint64_t>(0);
  options.progress = [line, total, what](const volume::MaintenanceProgress& progress) {
    if (*line == nullptr || *total != progress.all_bytes)
      *line = std::make_unique<Progress>(what, progress.all_bytes, progress.done_bytes);
    *total = progress.all_bytes;
    (*line)->update(progress.done_bytes);
  };
  return options;
}

Outcome tell_report(const Globals& globals, const volume::Managed<volume::MaintenanceReport>& done,
                    const std::string& context) {
  if (!done) return fail_in_cluster(done.error(), context);
  if (globals.json)
    print_json(json_of(*done));
  else
    print_report(*done);
  return done->left.empty() ? ExitCode::kOk : ExitCode::kRefused;
}

}  // namespace remora::apps
