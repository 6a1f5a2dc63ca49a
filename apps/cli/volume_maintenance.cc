/// remora volume: repairs, balances and claims mirrors.

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include <remora/volume/maintenance.h>

#include "cli/cluster_uri.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/maintenance.h"

namespace remora::apps {
namespace {

struct WorkArguments {
  std::string uri{};
  MaintenanceArguments maintenance{};
  bool from_headers = false;
  bool forget_unreachable = false;
  std::vector<std::uint64_t> groups{};
};

using Function = volume::Managed<volume::MaintenanceReport> (*)(const volume::Cluster&,
                                                                const Engine&, std::string_view,
                                                                const volume::MaintenanceOptions&);

Outcome work_on_volume(const Globals& globals, const WorkArguments& arguments,
                       const std::string& verb, Function function) {
  const auto named = open_cluster(globals, arguments.uri, true);
  if (!named) return tl::make_unexpected(named.error());
  const auto engine = open_engine(globals);
  if (!engine) return fail(engine.error());
  const std::string context = "volume " + verb + " " + arguments.uri;
  const auto done =
      function(named->cluster, *engine, named->volume,
               maintenance_options(globals, arguments.maintenance, verb + " " + named->volume));
  return tell_report(globals, done, context);
}

/// Makes the records anew where that is necessary, then goes on as a repair.
Outcome repair_from_headers(const Globals& globals, const WorkArguments& arguments) {
  const auto named = open_cluster(globals, arguments.uri, true);
  if (!named) return tl::make_unexpected(named.error());
  const auto engine = open_engine(globals);
  if (!engine) return fail(engine.error());
  const auto groups = volume::restore_from_headers(named->cluster, *engine, named->volume,
                                                   arguments.forget_unreachable);
  if (!groups && groups.error().error.operation() != "group to restore")
    return fail_in_cluster(groups.error(), "volume repair " + arguments.uri);
  if (groups && !globals.json)
    std::cout << groups->size() << " records made from headers\n" << std::flush;
  return work_on_volume(globals, arguments, "repair", volume::repair_volume);
}

Outcome accept_loss_of(const Globals& globals, const WorkArguments& arguments) {
  const auto named = open_cluster(globals, arguments.uri, true);
  if (!named) return tl::make_unexpected(named.error());
  const auto engine = open_engine(globals);
  if (!engine) return fail(engine.error());
  const auto groups = volume::accept_loss(
      named->cluster, *engine, named->volume,
      {.groups = arguments.groups, .forget_unreachable = arguments.forget_unreachable});
  if (!groups) return fail_in_cluster(groups.error(), "volume accept-loss " + arguments.uri);
  if (globals.json) print_json(Json{{"groups", *groups}});
  for (const std::uint64_t group : *groups)
    if (!globals.json) std::cout << "group " << group << " is zeros\n";
  return ExitCode::kOk;
}

Outcome claim_volume(const Globals& globals, const WorkArguments& arguments) {
  const auto named = open_cluster(globals, arguments.uri, true);
  if (!named) return tl::make_unexpected(named.error());
  const auto engine = open_engine(globals);
  if (!engine) return fail(engine.error());
  const auto claimed = [&](const volume::VolumeRecord& record) {
    if (globals.json)
      print_json(Json{{"claimed", record.name},
                      {"writer", record.writer},
                      {"writer_epoch", record.writer_epoch}});
    else
      std::cout << "claimed " << record.name << " as " << record.writer << ", writer epoch "
                << record.writer_epoch << "; an interrupt releases it\n";
    std::cout.flush();
  };
  const auto held = volume::hold_claim(
      named->cluster, *engine, named->volume,
      maintenance_options(globals, arguments.maintenance, "claim " + named->volume), claimed);
  if (!held) return fail_in_cluster(held.error(), "volume claim " + arguments.uri);
  return ExitCode::kOk;
}

Outcome release_volume(const Globals& globals, const WorkArguments& arguments) {
  const auto named = open_cluster(globals, arguments.uri, true);
  if (!named) return tl::make_unexpected(named.error());
  const auto engine = open_engine(globals);
  if (!engine) return fail(engine.error());
  const auto released = volume::release_claim(named->cluster, *engine, named->volume);
  if (!released) return fail_in_cluster(released.error(), "volume release " + arguments.uri);
  if (globals.json)
    print_json(Json{{"released", named->volume}});
  else
    std::cout << "released " << named->volume << '\n';
  return ExitCode::kOk;
}

/// A command that works on one volume with the options of long work.
CLI::App* add_work(Commands& commands, CLI::App* group, const std::string& verb,
                   const std::string& description, Function function) {
  const auto arguments = std::make_shared<WorkArguments>();
  CLI::App* const command = commands.add(verb, description, group);
  add_cluster_uri(command, arguments->uri, true);
  add_maintenance_options(command, arguments->maintenance);
  Commands::on_run(command, [&commands, arguments, verb, function] {
    return work_on_volume(commands.globals(), *arguments, verb, function);
  });
  return command;
}

void add_volume_repair(Commands& commands, CLI::App* group) {
  const auto arguments = std::make_shared<WorkArguments>();
  CLI::App* const command = commands.add(
      "repair", "Make a volume whole: copies that are missing, remains of what was interrupted",
      group);
  add_cluster_uri(command, arguments->uri, true);
  add_maintenance_options(command, arguments->maintenance);
  CLI::Option* const headers =
      command->add_flag("--from-headers", arguments->from_headers,
                        "First make records that are older than the members from their headers");
  command
      ->add_flag("--forget-unreachable", arguments->forget_unreachable,
                 "Pass over servers that do not answer, which may have newer bytes")
      ->needs(headers);
  Commands::on_run(command, [&commands, arguments]() -> Outcome {
    if (arguments->from_headers) return repair_from_headers(commands.globals(), *arguments);
    return work_on_volume(commands.globals(), *arguments, "repair", volume::repair_volume);
  });
}

void add_volume_accept_loss(Commands& commands, CLI::App* group) {
  const auto arguments = std::make_shared<WorkArguments>();
  CLI::App* const command = commands.add(
      "accept-loss", "Give groups whose bytes are gone new members, full of zeros", group);
  add_cluster_uri(command, arguments->uri, true);
  command
      ->add_option("--only", arguments->groups,
                   "Only this group; again for each other one (all that are lost)")
      ->type_name("GROUP")
      ->allow_extra_args(false);
  command->add_flag("--forget-unreachable", arguments->forget_unreachable,
                    "Give up the bytes on servers that cannot be reached, too");
  Commands::on_run(
      command, [&commands, arguments] { return accept_loss_of(commands.globals(), *arguments); });
}

}  // namespace

void add_volume_maintenance_commands(Commands& commands, CLI::App* group) {
  add_volume_repair(commands, group);
  add_work(commands, group, "rebalance", "Move copies from full servers to empty ones",
           volume::rebalance_volume);
  add_work(commands, group, "add-copy", "Give each group of a mirror one copy more",
           volume::add_copy);
  add_volume_accept_loss(commands, group);
  const auto claim = std::make_shared<WorkArguments>();
  CLI::App* command = commands.add(
      "claim", "Be the writer of a mirror until interrupted, so that no program writes", group);
  add_cluster_uri(command, claim->uri, true);
  command->add_flag("--steal", claim->maintenance.steal,
                    "Take the claim of a program that is alive");
  Commands::on_run(command,
                   [&commands, claim] { return claim_volume(commands.globals(), *claim); });
  const auto release = std::make_shared<WorkArguments>();
  command = commands.add("release", "End the claim of another program on a mirror", group);
  add_cluster_uri(command, release->uri, true);
  Commands::on_run(command,
                   [&commands, release] { return release_volume(commands.globals(), *release); });
}

}  // namespace remora::apps
