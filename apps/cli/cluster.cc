/// remora cluster: shows the servers of a cluster.

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <remora/config/units.h>
#include <remora/volume/cluster.h>

#include "cli/cluster_uri.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/human.h"
#include "cli/table.h"

namespace remora::apps {
namespace {

std::string joined(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) all.append(all.empty() ? "" : ", ").append(text);
  return all;
}

Json json_of(const volume::ServerRecord& server) {
  return Json{{"name", server.name},
              {"addresses", server.addresses},
              {"failure_domain", server.domain()},
              {"pool_bytes", server.pool_bytes},
              {"pool_free_bytes", server.pool_free_bytes},
              {"boot_id", hex_digits(server.boot_id)},
              {"memory_id", hex_digits(server.memory_id)},
              {"version", server.software}};
}

void print_servers(const std::vector<volume::ServerRecord>& servers) {
  std::vector<std::vector<std::string>> rows{
      {"SERVER", "ADDRESS", "DOMAIN", "POOL", "FREE", "VERSION"}};
  double free = 0;
  for (const volume::ServerRecord& server : servers) {
    rows.push_back({server.name, joined(server.addresses), server.domain(),
                    human_bytes(static_cast<double>(server.pool_bytes)),
                    human_bytes(static_cast<double>(server.pool_free_bytes)), server.software});
    free += static_cast<double>(server.pool_free_bytes);
  }
  print_table(std::move(rows));
  std::cout << servers.size() << (servers.size() == 1 ? " server, " : " servers, ")
            << human_bytes(free) << " free\n";
}

Outcome show_status(const Globals& globals, const std::string& uri) {
  const auto named = open_cluster(globals, uri, false);
  if (!named) return tl::make_unexpected(named.error());
  const auto servers = named->cluster.servers();
  if (!servers) return fail_in_cluster(servers.error(), "cluster status " + uri);
  const auto volumes = named->cluster.volumes();
  if (!volumes) return fail_in_cluster(volumes.error(), "cluster status " + uri);
  if (!globals.json) {
    print_servers(*servers);
    std::cout << volumes->size() << (volumes->size() == 1 ? " volume" : " volumes")
              << (volumes->empty() ? "" : ": 'remora volume ls " + named->uri + "' lists them")
              << '\n';
    return ExitCode::kOk;
  }
  Json list = Json::array();
  for (const volume::ServerRecord& server : *servers) list.push_back(json_of(server));
  print_json(Json{{"cluster", named->cluster.name()},
                  {"store", named->cluster.store().name()},
                  {"servers", std::move(list)},
                  {"volumes", volumes->size()}});
  return ExitCode::kOk;
}

}  // namespace

void add_cluster_commands(Commands& commands) {
  CLI::App* const group = commands.add("cluster", "Show the servers of a cluster");
  group->require_subcommand(1);
  const auto uri = std::make_shared<std::string>();
  CLI::App* const status =
      commands.add("status", "List the servers that are registered, and their free memory", group);
  add_cluster_uri(status, *uri, false);
  Commands::on_run(status, [&commands, uri] { return show_status(commands.globals(), *uri); });
}

}  // namespace remora::apps
