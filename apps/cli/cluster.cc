/// remora cluster: shows the servers of a cluster, and empties one.

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include <remora/volume/maintenance.h>

#include "cli/cluster_report.h"
#include "cli/cluster_uri.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/maintenance.h"
#include "cli/table.h"

namespace remora::apps {
namespace {

struct DrainArguments {
  std::string uri{};
  std::string server{};
  bool undo = false;
  MaintenanceArguments maintenance{};
};

Outcome drain_cluster_server(const Globals& globals, const DrainArguments& arguments) {
  const auto named = open_cluster(globals, arguments.uri, false);
  if (!named) return tl::make_unexpected(named.error());
  const std::string context = "cluster drain " + arguments.server;
  if (arguments.undo) {
    const auto ended = volume::end_drain_server(named->cluster, arguments.server);
    if (!ended) return fail_in_cluster(ended.error(), context);
    if (globals.json)
      print_json(Json{{"server", arguments.server}, {"draining", false}});
    else
      std::cout << arguments.server << " gets new members again\n";
    return ExitCode::kOk;
  }
  const auto engine = open_engine(globals);
  if (!engine) return fail(engine.error());
  const auto done = volume::drain_server(
      named->cluster, *engine, arguments.server,
      maintenance_options(globals, arguments.maintenance, "draining " + arguments.server));
  Outcome outcome = tell_report(globals, done, context);
  if (outcome && *outcome == ExitCode::kOk && !globals.json)
    std::cout << arguments.server << " has no member any more: it can be stopped\n";
  return outcome;
}

Outcome renew(const Globals& globals, const std::string& uri) {
  const auto named = open_cluster(globals, uri, false);
  if (!named) return tl::make_unexpected(named.error());
  const auto generation = volume::renew_generation(named->cluster);
  if (!generation) return fail_in_cluster(generation.error(), "cluster new-generation " + uri);
  if (globals.json)
    print_json(Json{{"generation", hex_digits(*generation)}});
  else
    std::cout << "generation " << hex_digits(*generation)
              << ": mirrors are used again after 'remora volume repair' of each\n";
  return ExitCode::kOk;
}

void add_cluster_drain(Commands& commands, CLI::App* group) {
  const auto arguments = std::make_shared<DrainArguments>();
  CLI::App* const drain = commands.add(
      "drain", "Move all copies from a server, which gets no new ones, before it is stopped",
      group);
  add_cluster_uri(drain, arguments->uri, false);
  drain->add_option("SERVER", arguments->server, "Its name in the cluster")
      ->type_name("")
      ->check(not_empty())
      ->required();
  drain->add_flag("--undo", arguments->undo, "Let it get new copies again");
  add_maintenance_options(drain, arguments->maintenance);
  Commands::on_run(drain, [&commands, arguments] {
    return drain_cluster_server(commands.globals(), *arguments);
  });
}

}  // namespace

void add_cluster_commands(Commands& commands) {
  CLI::App* const group = commands.add("cluster", "Show and drain the servers of a cluster");
  group->require_subcommand(1);
  const auto uri = std::make_shared<std::string>();
  CLI::App* const status =
      commands.add("status", "List the servers that are registered, and their free memory", group);
  add_cluster_uri(status, *uri, false);
  Commands::on_run(status, [&commands, uri] {
    return show_cluster(commands.globals(), *uri, "cluster status");
  });
  add_cluster_drain(commands, group);
  CLI::App* const generation =
      commands.add("new-generation", "After a restore of the store from a snapshot", group);
  add_cluster_uri(generation, *uri, false);
  Commands::on_run(generation, [&commands, uri] { return renew(commands.globals(), *uri); });
}

}  // namespace remora::apps
