#include "cli/cluster_report.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include <remora/config/units.h>

#include "cli/cluster_uri.h"
#include "cli/human.h"
#include "cli/table.h"

namespace remora::apps {
namespace {

using Rows = std::vector<std::vector<std::string>>;

constexpr std::string_view kHealthy = "ok";

std::string joined(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) all.append(all.empty() ? "" : ", ").append(text);
  return all;
}

std::string amount(std::size_t count, std::string_view noun) {
  std::string text = std::to_string(count);
  return text.append(" ").append(noun).append(count == 1 ? "" : "s");
}

std::string human_memory(std::uint64_t bytes) { return human_bytes(static_cast<double>(bytes)); }

Json server_json(const volume::ServerRecord& server) {
  return Json{{"name", server.name},
              {"addresses", server.addresses},
              {"failure_domain", server.domain()},
              {"pool_bytes", server.pool_bytes},
              {"pool_free_bytes", server.pool_free_bytes},
              {"boot_id", hex_digits(server.boot_id)},
              {"memory_id", hex_digits(server.memory_id)},
              {"version", server.software}};
}

std::uint64_t free_bytes(const std::vector<volume::ServerRecord>& servers) {
  std::uint64_t sum = 0;
  for (const volume::ServerRecord& server : servers) sum += server.pool_free_bytes;
  return sum;
}

void print_servers(const std::vector<volume::ServerRecord>& servers) {
  Rows rows{{"SERVER", "ADDRESS", "DOMAIN", "POOL", "FREE", "VERSION"}};
  for (const volume::ServerRecord& server : servers)
    rows.push_back({server.name, joined(server.addresses), server.domain(),
                    human_memory(server.pool_bytes), human_memory(server.pool_free_bytes),
                    server.software});
  print_table(std::move(rows));
  std::cout << amount(servers.size(), "server") << ", " << human_memory(free_bytes(servers))
            << " free\n";
}

/// "ok", or what is wrong with the member's server as the cluster knows it.
std::string_view state_of(const volume::VolumeLayout& layout, const volume::Member& member) {
  const volume::ServerRecord* const server = layout.find_server(member.server);
  if (server == nullptr) return "not registered";
  return server->memory_id == member.memory_id ? kHealthy : "lost: other memory";
}

/// The part of a volume on one server.
struct Share {
  std::string name{};
  std::size_t groups = 0;
  std::string_view state = kHealthy;             ///< the worst of its members
  const volume::ServerRecord* server = nullptr;  ///< null: it is not registered
};

/// By the name of the server.
std::vector<Share> shares_of(const volume::VolumeLayout& layout) {
  std::map<std::string, Share> shares;
  for (const volume::GroupRecord& group : layout.groups)
    for (const volume::Member& member : group.members) {
      Share& share = shares[member.server];
      share.name = member.server;
      share.server = layout.find_server(member.server);
      ++share.groups;
      if (const auto state = state_of(layout, member); state != kHealthy) share.state = state;
    }
  std::vector<Share> all;
  for (auto& [name, share] : shares) all.push_back(std::move(share));
  return all;
}

/// The groups of which no member can be read.
std::size_t lost_groups(const volume::VolumeLayout& layout) {
  const auto lost = [&](const volume::GroupRecord& group) {
    return std::none_of(
        group.members.begin(), group.members.end(),
        [&](const volume::Member& member) { return state_of(layout, member) == kHealthy; });
  };
  return static_cast<std::size_t>(std::count_if(layout.groups.begin(), layout.groups.end(), lost));
}

Json share_json(const Share& share) {
  Json json{{"name", share.name}, {"groups", share.groups}, {"state", share.state}};
  if (share.server == nullptr) return json;
  json["addresses"] = share.server->addresses;
  json["failure_domain"] = share.server->domain();
  json["pool_bytes"] = share.server->pool_bytes;
  json["pool_free_bytes"] = share.server->pool_free_bytes;
  return json;
}

Json layout_json(const volume::VolumeLayout& layout) {
  Json json = volume_json(layout.volume);
  json["metadata_revision"] = layout.revision;
  json["groups_lost"] = lost_groups(layout);
  Json& servers = json["servers"] = Json::array();
  for (const Share& share : shares_of(layout)) servers.push_back(share_json(share));
  json["cluster_free_bytes"] = free_bytes(layout.servers);
  Json& members = json["members"] = Json::array();
  for (const volume::GroupRecord& group : layout.groups)
    for (const volume::Member& member : group.members)
      members.push_back({{"group", group.index},
                         {"server", member.server},
                         {"addresses", layout.addresses_of(member)},
                         {"region", member.region},
                         {"memory_id", hex_digits(member.memory_id)},
                         {"state", state_of(layout, member)}});
  return json;
}

void print_layout(const volume::VolumeLayout& layout) {
  Rows servers{{"SERVER", "DOMAIN", "GROUPS", "POOL", "FREE", "STATE"}};
  for (const Share& share : shares_of(layout)) {
    const volume::ServerRecord* const server = share.server;
    servers.push_back({share.name, server != nullptr ? server->domain() : "-",
                       std::to_string(share.groups),
                       server != nullptr ? human_memory(server->pool_bytes) : "-",
                       server != nullptr ? human_memory(server->pool_free_bytes) : "-",
                       std::string{share.state}});
  }
  print_table(std::move(servers));
  std::cout << '\n';
  Rows members{{"GROUP", "SERVER", "ADDRESS", "REGION", "STATE"}};
  for (const volume::GroupRecord& group : layout.groups)
    for (const volume::Member& member : group.members)
      members.push_back({std::to_string(group.index), member.server,
                         layout.addresses_of(member).front(), member.region,
                         std::string{state_of(layout, member)}});
  print_table(std::move(members));
  const std::size_t lost = lost_groups(layout);
  std::cout << amount(layout.groups.size(), "group") << ", "
            << (lost == 0 ? "all can be read" : std::to_string(lost) + " cannot be read") << "; "
            << human_memory(free_bytes(layout.servers)) << " free on "
            << amount(layout.servers.size(), "server") << '\n';
}

}  // namespace

Json volume_json(const volume::VolumeRecord& record) {
  return Json{{"name", record.name},
              {"id", hex_digits(record.id)},
              {"state", to_string(record.state)},
              {"size_bytes", record.size_bytes},
              {"block_bytes", record.block_bytes},
              {"kind", to_string(record.kind)},
              {"copies", record.copies},
              {"group_bytes", record.group_bytes},
              {"stripe_bytes", record.stripe_bytes},
              {"width", record.width},
              {"groups", record.group_count()}};
}

void print_volume(const Globals& globals, const volume::VolumeRecord& record,
                  std::string_view what) {
  using config::format_size;
  if (globals.json) return print_json(volume_json(record));
  std::cout << what << ' ' << record.name << ": " << format_size(record.size_bytes) << ' '
            << to_string(record.kind) << " over " << record.group_count() << " groups of "
            << format_size(record.group_bytes) << ", stripe unit "
            << format_size(record.stripe_bytes) << ", blocks of " << format_size(record.block_bytes)
            << '\n';
}

Outcome show_cluster(const Globals& globals, const std::string& uri, std::string_view command) {
  const std::string what = std::string{command} + " " + uri;
  const auto named = open_cluster(globals, uri, false);
  if (!named) return tl::make_unexpected(named.error());
  const auto servers = named->cluster.servers();
  if (!servers) return fail_in_cluster(servers.error(), what);
  const auto volumes = named->cluster.volumes();
  if (!volumes) return fail_in_cluster(volumes.error(), what);
  if (!globals.json) {
    print_servers(*servers);
    std::cout << amount(volumes->size(), "volume")
              << (volumes->empty() ? "" : ": 'remora volume ls " + named->uri + "' lists them")
              << '\n';
    return ExitCode::kOk;
  }
  Json list = Json::array();
  for (const volume::ServerRecord& server : *servers) list.push_back(server_json(server));
  print_json(Json{{"cluster", named->cluster.name()},
                  {"store", named->cluster.store().name()},
                  {"servers", std::move(list)},
                  {"volumes", volumes->size()}});
  return ExitCode::kOk;
}

Outcome show_volume(const Globals& globals, const std::string& uri, std::string_view command) {
  const auto named = open_cluster(globals, uri, true);
  if (!named) return tl::make_unexpected(named.error());
  const auto layout = named->cluster.layout(named->volume);
  if (!layout) return fail_in_cluster(layout.error(), std::string{command} + " " + uri);
  if (globals.json) {
    print_json(layout_json(*layout));
    return ExitCode::kOk;
  }
  print_volume(globals, layout->volume, "volume");
  print_layout(*layout);
  return ExitCode::kOk;
}

}  // namespace remora::apps
