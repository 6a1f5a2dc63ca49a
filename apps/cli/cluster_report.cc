#include "cli/cluster_report.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include <remora/config/units.h>
#include <remora/volume/maintenance.h>
#include <remora/volume/uri.h>

#include "cli/cluster_uri.h"
#include "cli/human.h"
#include "cli/table.h"
#include "cli/volumes.h"

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

bool is_listed(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

Json server_json(const volume::ServerRecord& server, bool draining) {
  return Json{{"name", server.name},
              {"draining", draining},
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

void print_servers(const std::vector<volume::ServerRecord>& servers,
                   const std::vector<std::string>& draining) {
  Rows rows{{"SERVER", "ADDRESS", "DOMAIN", "POOL", "FREE", "VERSION", "STATE"}};
  for (const volume::ServerRecord& server : servers)
    rows.push_back({server.name, joined(server.addresses), server.domain(),
                    human_memory(server.pool_bytes), human_memory(server.pool_free_bytes),
                    server.software, is_listed(draining, server.name) ? "draining" : "ok"});
  print_table(std::move(rows));
  std::cout << amount(servers.size(), "server") << ", " << human_memory(free_bytes(servers))
            << " free\n";
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
      if (const auto state = to_string(condition_of(layout, member)); state != kHealthy)
        share.state = state;
    }
  std::vector<Share> all;
  all.reserve(shares.size());
  for (auto& [name, share] : shares) all.push_back(std::move(share));
  return all;
}

bool cannot_be_read(volume::GroupCondition condition) {
  return condition == volume::GroupCondition::kLost ||
         condition == volume::GroupCondition::kUnreachable;
}

/// The groups of which no member can be read.
std::size_t lost_groups(const volume::VolumeLayout& layout) {
  const auto lost = [&](const volume::GroupRecord& group) {
    return cannot_be_read(condition_of(layout, group));
  };
  return static_cast<std::size_t>(std::count_if(layout.groups.begin(), layout.groups.end(), lost));
}

/// Whether a claim has to compare the members of the group with its record.
bool is_restored(const volume::VolumeLayout& layout, const volume::GroupRecord& group) {
  return layout.volume.kind == volume::Kind::kMirror &&
         (group.restored || group.generation != layout.generation);
}

/// "primary", "in sync" or "syncing".
std::string_view role_of(const volume::GroupRecord& group, const volume::Member& member) {
  if (member.state == volume::MemberState::kSyncing) return "syncing";
  return &member == &group.members.front() ? "primary" : "in sync";
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
  json["writer"] = layout.live_writer;
  Json& groups = json["group_states"] = Json::array();
  for (const volume::GroupRecord& group : layout.groups)
    groups.push_back({{"group", group.index},
                      {"state", to_string(condition_of(layout, group))},
                      {"epoch", group.epoch},
                      {"restored", is_restored(layout, group)}});
  Json& members = json["members"] = Json::array();
  for (const volume::GroupRecord& group : layout.groups)
    for (const volume::Member& member : group.members)
      members.push_back({{"group", group.index},
                         {"role", role_of(group, member)},
                         {"server", member.server},
                         {"addresses", layout.addresses_of(member)},
                         {"region", member.region},
                         {"memory_id", hex_digits(member.memory_id)},
                         {"state", to_string(condition_of(layout, member))}});
  return json;
}

void print_members(const volume::VolumeLayout& layout) {
  const bool mirror = layout.volume.kind == volume::Kind::kMirror;
  Rows members{{"GROUP", "SERVER", "ADDRESS", "REGION", "STATE"}};
  if (mirror) members[0] = {"GROUP", "IS", "ROLE", "SERVER", "ADDRESS", "REGION", "STATE"};
  for (const volume::GroupRecord& group : layout.groups)
    for (const volume::Member& member : group.members) {
      std::vector<std::string>& row = members.emplace_back();
      row.push_back(std::to_string(group.index));
      if (mirror) {
        row.emplace_back(to_string(condition_of(layout, group)));
        row.emplace_back(role_of(group, member));
      }
      row.push_back(member.server);
      row.push_back(layout.addresses_of(member).front());
      row.push_back(member.region);
      row.emplace_back(to_string(condition_of(layout, member)));
    }
  print_table(std::move(members));
}

/// The writer of a mirror, and what its groups need.
void print_mirror(const volume::VolumeLayout& layout, const std::string& uri) {
  std::size_t degraded = 0;
  std::size_t lost = 0;
  std::size_t restored = 0;
  for (const volume::GroupRecord& group : layout.groups) {
    const volume::GroupCondition condition = condition_of(layout, group);
    degraded += condition == volume::GroupCondition::kDegraded ? 1U : 0U;
    lost += condition == volume::GroupCondition::kLost ? 1U : 0U;
    restored += is_restored(layout, group) ? 1U : 0U;
  }
  std::cout << "writer: " << (layout.live_writer.empty() ? "none" : layout.live_writer) << '\n';
  if (degraded != 0)
    std::cout << amount(degraded, "group") << " degraded: 'remora volume repair " << uri << "'\n";
  if (lost != 0)
    std::cout << amount(lost, "group") << " lost: 'remora volume accept-loss " << uri << "'\n";
  if (restored != 0)
    std::cout << amount(restored, "group") << " restored, to be compared by 'remora volume repair "
              << uri << "'\n";
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
  print_members(layout);
  const std::size_t lost = lost_groups(layout);
  std::cout << amount(layout.groups.size(), "group") << ", "
            << (lost == 0 ? "all can be read" : std::to_string(lost) + " cannot be read") << "; "
            << human_memory(free_bytes(layout.servers)) << " free on "
            << amount(layout.servers.size(), "server") << '\n';
}

}  // namespace

std::string kind_text(const volume::VolumeRecord& record) {
  std::string text{to_string(record.kind)};
  if (record.kind == volume::Kind::kMirror) text.append(":").append(std::to_string(record.copies));
  return text;
}

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
              {"groups", record.group_count()},
              {"writer_epoch", record.writer_epoch}};
}

void print_volume(const Globals& globals, const volume::VolumeRecord& record,
                  std::string_view what) {
  using config::format_size;
  if (globals.json) return print_json(volume_json(record));
  std::cout << what << ' ' << record.name << ": " << format_size(record.size_bytes) << ' '
            << kind_text(record) << " over " << record.group_count() << " groups of "
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
  const auto draining = named->cluster.draining();
  if (!draining) return fail_in_cluster(draining.error(), what);
  if (!globals.json) {
    print_servers(*servers, *draining);
    std::cout << amount(volumes->size(), "volume")
              << (volumes->empty() ? "" : ": 'remora volume ls " + named->uri + "' lists them")
              << '\n';
    return ExitCode::kOk;
  }
  Json list = Json::array();
  for (const volume::ServerRecord& server : *servers)
    list.push_back(server_json(server, is_listed(*draining, server.name)));
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
  if (layout->volume.kind == volume::Kind::kMirror) print_mirror(*layout, named->uri);
  print_layout(*layout);
  return ExitCode::kOk;
}

Outcome stat_in_cluster(const Globals& globals, const std::string& text) {
  const auto uri = volume::parse_uri(text);
  if (uri && uri->volume.empty()) return show_cluster(globals, text, "stat");
  return show_volume(globals, text, "stat");
}

}  // namespace remora::apps
