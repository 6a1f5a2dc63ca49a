/// remora ls, create, stat, rm: lists, creates, shows and removes regions.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include <remora/config/server_config.h>
#include <remora/config/units.h>

#include "cli/command.h"
#include "cli/commands.h"
#include "cli/human.h"
#include "cli/region_access.h"
#include "cli/table.h"
#include "cli/volumes.h"

namespace remora::apps {
namespace {

using config::format_size;

std::string words_of(const RegionAccess& access) {
  std::string words = access.rights == Rights::kNone ? "" : to_string(access.rights);
  if (access.admin) words += words.empty() ? "admin" : ",admin";
  return words;
}

Json to_json(const RegionInfo& region) {
  Json access = Json::array();
  for (const RegionAccess& each : region.access)
    access.push_back({{"client", each.client}, {"rights", words_of(each)}});
  return Json{{"name", region.name},
              {"size_bytes", region.size_bytes},
              {"block_bytes", region.block_bytes},
              {"rights", to_string(region.rights)},
              {"atomic_domain", region.atomic_domain},
              {"shm", region.shm},
              {"epoch", region.epoch},
              {"incarnation", region.incarnation},
              {"memory_id", hex_digits(region.memory_id)},
              {"extents", region.extent_count},
              {"open", region.open_count},
              {"owner", region.owner},
              {"access", std::move(access)},
              {"lifetime", to_string(region.lifetime)},
              {"ttl_seconds", static_cast<double>(region.ttl.count()) / 1000.0}};
}

std::vector<std::string> names_of(const std::vector<TransportKind>& transports) {
  std::vector<std::string> names;
  names.reserve(transports.size());
  for (const TransportKind kind : transports) names.emplace_back(to_string(kind));
  return names;
}

Json to_json(const Session& session) {
  const ServerInfo& server = session.server();
  return Json{{"name", server.name},
              {"transport", to_string(session.transport())},
              {"device", server.device},
              {"boot_id", hex_digits(server.boot_id)},
              {"memory_id", hex_digits(server.memory_id)},
              {"pool_bytes", server.pool_bytes},
              {"pool_free_bytes", server.pool_free_bytes},
              {"transports", names_of(server.transports)}};
}

std::string pool_line(const ServerInfo& server) {
  return human_bytes(static_cast<double>(server.pool_free_bytes)) + " free of " +
         human_bytes(static_cast<double>(server.pool_bytes));
}

Outcome list(const Globals& globals, const std::string& text) {
  if (auto uri = parse_uri(text, false); !uri) return tl::make_unexpected(uri.error());
  const auto session = open_session(globals, text);
  if (!session) return tl::make_unexpected(session.error());
  const auto regions = session->regions();
  if (!regions) return fail(regions.error(), "ls " + text);
  if (globals.json) {
    Json document{{"server", to_json(*session)}, {"regions", Json::array()}};
    for (const RegionInfo& region : *regions) document["regions"].push_back(to_json(region));
    print_json(document);
    return ExitCode::kOk;
  }
  std::vector<std::vector<std::string>> rows{
      {"NAME", "SIZE", "BLOCK", "RIGHTS", "ATOMICS", "SHM", "OPEN"}};
  for (const RegionInfo& region : *regions)
    rows.push_back({region.name, format_size(region.size_bytes), format_size(region.block_bytes),
                    to_string(region.rights), region.atomic_domain, region.shm ? "yes" : "no",
                    std::to_string(region.open_count)});
  print_table(rows);
  std::cout << regions->size() << (regions->size() == 1 ? " region" : " regions") << ", pool "
            << pool_line(session->server()) << '\n';
  return ExitCode::kOk;
}

void print_region(const RegionInfo& region) {
  std::vector<std::vector<std::string>> rows{
      {"name", region.name},
      {"size",
       format_size(region.size_bytes) + " (" + std::to_string(region.size_bytes) + " bytes)"},
      {"block", format_size(region.block_bytes)},
      {"rights", to_string(region.rights)},
      {"atomics", region.atomic_domain},
      {"shm", region.shm ? "yes" : "no"},
      {"epoch", std::to_string(region.epoch)},
      {"incarnation", std::to_string(region.incarnation)},
      {"memory id", hex_digits(region.memory_id)},
      {"extents", std::to_string(region.extent_count)},
      {"open", std::to_string(region.open_count)}};
  if (!region.owner.empty()) rows.push_back({"owner", region.owner});
  for (const RegionAccess& each : region.access)
    rows.push_back({"access", each.client + ": " + words_of(each)});
  print_table(rows);
}

Outcome stat(const Globals& globals, const std::string& text) {
  if (is_cluster_uri(text)) return stat_in_cluster(globals, text);
  const Result<Uri> uri = Uri::parse(text);
  if (!uri) return tl::make_unexpected(parse_uri(text, true).error());
  const auto session = open_session(globals, text);
  if (!session) return tl::make_unexpected(session.error());
  if (uri->region.empty()) {
    if (globals.json) {
      print_json(to_json(*session));
      return ExitCode::kOk;
    }
    const ServerInfo& server = session->server();
    std::string offered;
    for (const std::string& name : names_of(server.transports))
      offered += (offered.empty() ? "" : ", ") + name;
    print_table({{"server", server.name},
                 {"transport", std::string{to_string(session->transport())}},
                 {"offers", offered.empty() ? "unknown" : offered},
                 {"device", server.device.empty() ? "none" : server.device},
                 {"boot id", hex_digits(server.boot_id)},
                 {"memory id", hex_digits(server.memory_id)},
                 {"pool", pool_line(server)}});
    return ExitCode::kOk;
  }
  const auto region = session->stat(uri->region);
  if (!region) return fail(region.error(), "stat " + text);
  if (globals.json)
    print_json(to_json(*region));
  else
    print_region(*region);
  return ExitCode::kOk;
}

struct CreateOptions {
  std::string uri;
  std::vector<std::string> allow;
  std::string rights = "read,write,atomic";
  std::chrono::nanoseconds ttl{0};
  RegionSpec spec;
};

Outcome create(const Globals& globals, const CreateOptions& options) {
  const auto uri = parse_uri(options.uri, true);
  if (!uri) return tl::make_unexpected(uri.error());
  RegionSpec spec = options.spec;
  spec.name = uri->region;
  const auto rights = parse_rights(options.rights);
  if (!rights)
    return fail(ExitCode::kUsage,
                "--rights " + options.rights + ": want one or more of read,write,atomic");
  spec.rights = *rights;
  for (const std::string& text : options.allow) {
    auto access = parse_access(text);
    if (!access) return fail(ExitCode::kUsage, explain_access(text));
    spec.access.push_back(std::move(*access));
  }
  if (spec.size_bytes == 0 || spec.block_bytes == 0 || spec.size_bytes % spec.block_bytes != 0)
    return fail(ExitCode::kUsage, "--size " + format_size(spec.size_bytes) +
                                      " is not a positive multiple of --block " +
                                      format_size(spec.block_bytes));
  if (options.ttl > options.ttl.zero()) {
    spec.lifetime = Lifetime::kTtl;
    spec.ttl = std::chrono::ceil<std::chrono::milliseconds>(options.ttl);
  }
  const auto session = open_session(globals, options.uri);
  if (!session) return tl::make_unexpected(session.error());
  const auto region = session->create_region(spec);
  if (!region) return fail(region.error(), "create " + options.uri);
  if (globals.json)
    print_json(to_json(*region));
  else
    std::cout << "created " << region->name << ": " << format_size(region->size_bytes)
              << " in blocks of " << format_size(region->block_bytes) << ", atomics "
              << region->atomic_domain << (region->shm ? ", shm" : "") << '\n';
  if (!region->shm && session->server().surely_lacks(TransportKind::kRdma) &&
      session->server().surely_lacks(TransportKind::kTcp))
    std::cerr
        << "remora: warning: no client can open " << region->name
        << ": without --shm a region is open to rdma and tcp only, which this server does not "
           "offer; 'remora rm' it and create it with --shm, or turn tcp on in the server's file\n";
  return ExitCode::kOk;
}

struct RemoveOptions {
  std::string uri;
  bool now = false;
  bool when_unused = false;
};

Outcome remove(const Globals& globals, const RemoveOptions& options) {
  const std::string& text = options.uri;
  const Removal removal = options.now           ? Removal::kNow
                          : options.when_unused ? Removal::kWhenUnused
                                                : Removal::kIfUnused;
  const auto uri = parse_uri(text, true);
  if (!uri) return tl::make_unexpected(uri.error());
  const auto session = open_session(globals, text);
  if (!session) return tl::make_unexpected(session.error());
  if (const Status removed = session->remove_region(uri->region, removal); !removed)
    return fail(removed.error(), "rm " + text);
  if (globals.json)
    print_json(Json{{"removed", uri->region}});
  else
    std::cout << "removed " << uri->region << '\n';
  return ExitCode::kOk;
}

struct ResizeOptions {
  std::string uri;
  std::uint64_t size_bytes = 0;
};

Outcome resize(const Globals& globals, const ResizeOptions& options) {
  const auto uri = parse_uri(options.uri, true);
  if (!uri) return tl::make_unexpected(uri.error());
  const auto session = open_session(globals, options.uri);
  if (!session) return tl::make_unexpected(session.error());
  const auto region = session->resize_region(uri->region, options.size_bytes);
  if (!region) return fail(region.error(), "resize " + options.uri);
  if (globals.json)
    print_json(to_json(*region));
  else
    std::cout << "resized " << region->name << ": " << format_size(region->size_bytes) << '\n';
  return ExitCode::kOk;
}

void add_create(Commands& commands) {
  const auto options = std::make_shared<CreateOptions>();
  CLI::App* const command = commands.add("create", "Create a region, filled with zeros");
  add_uri(command, options->uri);
  add_size(command, "--size", options->spec.size_bytes, "Size of the region")->required();
  add_size(command, "--block", options->spec.block_bytes, "Size of a block (4KiB)");
  command
      ->add_option(
          "--atomics", options->spec.atomic_domain,
          "What carries out its atomics: auto (the device when created over rdma, else cpu), "
          "none, cpu, or a server device (auto)")
      ->type_name("DOMAIN");
  command->add_option("--rights", options->rights, "What clients may do (read,write,atomic)")
      ->type_name("RIGHTS");
  command
      ->add_option("--allow", options->allow,
                   "NAME=read,write,atomic,admin: what another client may do ('*': every client)")
      ->type_name("NAME=RIGHTS")
      ->allow_extra_args(false);
  add_duration(command, "--ttl", options->ttl,
               "Remove it when no client has had it open for so long (never)");
  command->add_flag("--shm", options->spec.shm,
                    "Let clients of the same user on the server's host map it");
  Commands::on_run(command, [&commands, options] { return create(commands.globals(), *options); });
}

}  // namespace

void add_admin_commands(Commands& commands) {
  const auto uri = std::make_shared<std::string>();
  CLI::App* command = commands.add("ls", "List the regions of a server");
  add_uri(command, *uri, true);
  Commands::on_run(command, [&commands, uri] { return list(commands.globals(), *uri); });

  add_create(commands);

  command = commands.add(
      "stat", "Describe a region or volume; the server or cluster when the URI names none");
  add_store_uri(command, *uri);
  Commands::on_run(command, [&commands, uri] { return stat(commands.globals(), *uri); });

  const auto resizing = std::make_shared<ResizeOptions>();
  command =
      commands.add("resize", "Make a region larger, or smaller: then it is taken from all first");
  add_uri(command, resizing->uri);
  add_size(command, "--size", resizing->size_bytes, "Its new size")->required();
  Commands::on_run(command,
                   [&commands, resizing] { return resize(commands.globals(), *resizing); });

  const auto removal = std::make_shared<RemoveOptions>();
  command = commands.add("rm", "Remove a region that no client has open");
  add_uri(command, removal->uri);
  CLI::Option* const now = command->add_flag(
      "--now", removal->now, "Revoke the grants of clients that have it open, then remove it");
  command
      ->add_flag("--when-unused", removal->when_unused,
                 "Clients that have it open keep it until they close it; its name is free at once")
      ->excludes(now);
  Commands::on_run(command, [&commands, removal] { return remove(commands.globals(), *removal); });
}

}  // namespace remora::apps
