/// remora cluster: shows the servers of a cluster.

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "cli/cluster_report.h"
#include "cli/cluster_uri.h"
#include "cli/command.h"
#include "cli/commands.h"

namespace remora::apps {

void add_cluster_commands(Commands& commands) {
  CLI::App* const group = commands.add("cluster", "Show the servers of a cluster");
  group->require_subcommand(1);
  const auto uri = std::make_shared<std::string>();
  CLI::App* const status =
      commands.add("status", "List the servers that are registered, and their free memory", group);
  add_cluster_uri(status, *uri, false);
  Commands::on_run(status, [&commands, uri] {
    return show_cluster(commands.globals(), *uri, "cluster status");
  });
}

}  // namespace remora::apps
