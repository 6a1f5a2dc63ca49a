/// remora volume: creates, lists, shows, grows and removes volumes over several servers.

#include <CLI/CLI.hpp>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include <remora/config/units.h>
#include <remora/volume/management.h>

#include "cli/cluster_report.h"
#include "cli/cluster_uri.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/input.h"
#include "cli/progress.h"
#include "cli/region_access.h"
#include "cli/table.h"

namespace remora::apps {
namespace {

using config::format_size;

/// Sets kind and copies from such a text. False: it is none.
bool parse_kind(std::string_view text, volume::VolumeSpec& spec) {
  if (text == "striped") return true;
  constexpr std::string_view kMirror = "mirror:";
  if (!text.starts_with(kMirror)) return false;
  const std::string_view number = text.substr(kMirror.size());
  const char* const end = number.data() + number.size();
  std::uint32_t copies = 0;
  const auto parsed = std::from_chars(number.data(), end, copies);
  if (parsed.ec != std::errc{} || parsed.ptr != end || copies < 2 || copies > volume::kCopiesMax)
    return false;
  spec.kind = volume::Kind::kMirror;
  spec.copies = copies;
  return true;
}

/// A file that is not larger than the records of the largest volume.
Result<std::string> read_whole(const std::string& path) {
  constexpr std::size_t kMax = std::size_t{64} << 20U;
  auto input = Input::open(path);
  if (!input) return input.error();
  std::string text;
  std::array<std::byte, 65536> part{};
  for (;;) {
    const auto count = input->read(part);
    if (!count) return count.error();
    if (*count == 0) return text;
    text.append(reinterpret_cast<const char*>(part.data()), *count);
    if (text.size() > kMax)
      return Error{Code::kLimitExceeded, "exported volume"}.with_subject(path).with_limit(
          text.size(), kMax);
  }
}

struct CreateVolume {
  std::string uri{};
  std::string kind = "striped";
  volume::VolumeSpec spec{};
  std::vector<std::string> allow{};
};

Outcome create_in_cluster(const Globals& globals, const CreateVolume& options) {
  volume::VolumeSpec spec = options.spec;
  if (!parse_kind(options.kind, spec))
    return fail(ExitCode::kUsage,
                "--kind " + options.kind +
                    ": want striped, or mirror:2 to mirror:" + std::to_string(volume::kCopiesMax));
  for (const std::string& text : options.allow) {
    auto access = parse_access(text);
    if (!access) return fail(ExitCode::kUsage, explain_access(text));
    spec.access.push_back(std::move(*access));
  }
  const auto named = open_cluster(globals, options.uri, true);
  if (!named) return tl::make_unexpected(named.error());
  spec.name = named->volume;
  const auto engine = open_engine(globals);
  if (!engine) return fail(engine.error());
  Progress progress{"creating " + spec.name, spec.size_bytes};
  const auto made = volume::create_volume(named->cluster, *engine, spec,
                                          [&](std::uint64_t done, std::uint64_t all) {
                                            progress.update(spec.size_bytes / all * done);
                                          });
  progress.finish();
  if (!made) return fail_in_cluster(made.error(), "volume create " + options.uri);
  print_volume(globals, *made, "created");
  return ExitCode::kOk;
}

Outcome list_volumes(const Globals& globals, const std::string& uri) {
  const auto named = open_cluster(globals, uri, false);
  if (!named) return tl::make_unexpected(named.error());
  const auto volumes = named->cluster.volumes();
  if (!volumes) return fail_in_cluster(volumes.error(), "volume ls " + uri);
  if (globals.json) {
    Json all = Json::array();
    for (const volume::VolumeRecord& record : *volumes) all.push_back(volume_json(record));
    print_json(Json{{"volumes", std::move(all)}});
    return ExitCode::kOk;
  }
  std::vector<std::vector<std::string>> rows{
      {"VOLUME", "SIZE", "KIND", "GROUPS", "WIDTH", "BLOCK", "STATE"}};
  for (const volume::VolumeRecord& record : *volumes)
    rows.push_back({record.name, format_size(record.size_bytes), kind_text(record),
                    std::to_string(record.group_count()), std::to_string(record.width),
                    format_size(record.block_bytes), std::string{to_string(record.state)}});
  print_table(std::move(rows));
  std::cout << volumes->size() << (volumes->size() == 1 ? " volume" : " volumes") << '\n';
  return ExitCode::kOk;
}

struct ResizeVolume {
  std::string uri{};
  std::uint64_t size_bytes = 0;
};

Outcome grow_in_cluster(const Globals& globals, const ResizeVolume& options) {
  const auto named = open_cluster(globals, options.uri, true);
  if (!named) return tl::make_unexpected(named.error());
  const auto engine = open_engine(globals);
  if (!engine) return fail(engine.error());
  Progress progress{"growing " + named->volume, options.size_bytes};
  const auto grown =
      volume::resize_volume(named->cluster, *engine, named->volume, options.size_bytes,
                            [&](std::uint64_t done, std::uint64_t all) {
                              progress.update(options.size_bytes / all * done);
                            });
  progress.finish();
  if (!grown) return fail_in_cluster(grown.error(), "volume resize " + options.uri);
  print_volume(globals, *grown, "volume");
  return ExitCode::kOk;
}

struct RemoveVolume {
  std::string uri{};
  volume::RemoveOptions options{};
};

Outcome remove_from_cluster(const Globals& globals, const RemoveVolume& options) {
  const auto named = open_cluster(globals, options.uri, true);
  if (!named) return tl::make_unexpected(named.error());
  const auto engine = open_engine(globals);
  if (!engine) return fail(engine.error());
  const auto removed =
      volume::remove_volume(named->cluster, *engine, named->volume, options.options);
  if (!removed) return fail_in_cluster(removed.error(), "volume rm " + options.uri);
  if (globals.json)
    print_json(Json{{"removed", named->volume}});
  else
    std::cout << "removed " << named->volume << '\n';
  return ExitCode::kOk;
}

Outcome export_records(const Globals& globals, const std::string& uri) {
  const auto named = open_cluster(globals, uri, true);
  if (!named) return tl::make_unexpected(named.error());
  const auto text = volume::export_volume(named->cluster, named->volume);
  if (!text) return fail_in_cluster(text.error(), "volume export " + uri);
  std::cout << *text;
  return ExitCode::kOk;
}

struct ImportVolume {
  std::string uri{};
  std::string file{};
  volume::ImportOptions options{};
};

Outcome import_records(const Globals& globals, const ImportVolume& options) {
  const auto named = open_cluster(globals, options.uri, false);
  if (!named) return tl::make_unexpected(named.error());
  const auto text = read_whole(options.file);
  if (!text) return fail_in_cluster(text.error(), "volume import " + options.file);
  const auto record = volume::import_volume(named->cluster, *text, options.options);
  if (!record) return fail_in_cluster(record.error(), "volume import " + options.file);
  print_volume(globals, *record, "imported");
  return ExitCode::kOk;
}

void add_volume_create(Commands& commands, CLI::App* group) {
  const auto options = std::make_shared<CreateVolume>();
  CLI::App* const command = commands.add("create", "Create a volume, all or nothing", group);
  add_cluster_uri(command, options->uri, true);
  add_size(command, "--size", options->spec.size_bytes, "Bytes of the volume")->required();
  command
      ->add_option("--kind", options->kind,
                   "striped: one copy of each byte; mirror:2 to mirror:8: so many (striped)")
      ->type_name("KIND");
  command->add_flag("--allow-same-domain", options->spec.allow_same_domain,
                    "Let copies be in one failure domain, on different servers");
  add_size(command, "--block", options->spec.block_bytes, "Bytes of a block (4KiB)");
  add_size(command, "--stripe", options->spec.stripe_bytes,
           "Bytes that follow each other on one server (1MiB)");
  command
      ->add_option("--width", options->spec.width,
                   "Groups over which stripes go round (4, at most the servers)")
      ->type_name("NUMBER");
  add_size(command, "--group", options->spec.group_bytes,
           "Bytes of a group, the part of one region (256MiB, less in a small volume)");
  command
      ->add_option("--server", options->spec.servers,
                   "Use this server; again for each other one (all that are registered)")
      ->type_name("NAME")
      ->allow_extra_args(false);
  command
      ->add_option("--atomics", options->spec.atomic_domain,
                   "What carries out the atomics of its regions: auto, none or cpu (auto)")
      ->type_name("DOMAIN");
  command
      ->add_option("--allow", options->allow,
                   "NAME=read,write,atomic,admin: what another client may do ('*': every client)")
      ->type_name("NAME=RIGHTS")
      ->allow_extra_args(false);
  Commands::on_run(
      command, [&commands, options] { return create_in_cluster(commands.globals(), *options); });
}

void add_volume_remove(Commands& commands, CLI::App* group) {
  const auto options = std::make_shared<RemoveVolume>();
  CLI::App* const command =
      commands.add("rm", "Remove a volume, or what is left of an interrupted creation", group);
  add_cluster_uri(command, options->uri, true);
  command->add_flag("--now", options->options.while_open, "Also while clients have it open");
  command->add_flag("--forget-unreachable", options->options.forget_unreachable,
                    "Forget the parts on servers that cannot be reached");
  Commands::on_run(
      command, [&commands, options] { return remove_from_cluster(commands.globals(), *options); });
}

void add_volume_resize(Commands& commands, CLI::App* group) {
  const auto options = std::make_shared<ResizeVolume>();
  CLI::App* const command = commands.add("resize", "Make a volume larger", group);
  add_cluster_uri(command, options->uri, true);
  add_size(command, "--size", options->size_bytes, "Bytes that it has afterwards")->required();
  Commands::on_run(command,
                   [&commands, options] { return grow_in_cluster(commands.globals(), *options); });
}

void add_volume_import(Commands& commands, CLI::App* group) {
  const auto options = std::make_shared<ImportVolume>();
  CLI::App* const command =
      commands.add("import", "Put the records of 'volume export' into a cluster again", group);
  add_cluster_uri(command, options->uri, false);
  command->add_option("FILE", options->file, "The exported records; - is standard input")
      ->type_name("")
      ->required();
  command->add_flag("--drop-lost-members", options->options.drop_lost_members,
                    "Leave out copies of a mirror whose servers have other memory");
  Commands::on_run(command,
                   [&commands, options] { return import_records(commands.globals(), *options); });
}

}  // namespace

void add_volume_commands(Commands& commands) {
  CLI::App* const group = commands.add("volume", "Create and manage volumes over several servers");
  group->require_subcommand(1);
  add_volume_create(commands, group);
  const auto uri = std::make_shared<std::string>();
  CLI::App* command = commands.add("ls", "List the volumes of a cluster", group);
  add_cluster_uri(command, *uri, false);
  Commands::on_run(command, [&commands, uri] { return list_volumes(commands.globals(), *uri); });
  command = commands.add("stat", "Describe a volume, and where its groups are", group);
  add_cluster_uri(command, *uri, true);
  Commands::on_run(
      command, [&commands, uri] { return show_volume(commands.globals(), *uri, "volume stat"); });
  add_volume_resize(commands, group);
  add_volume_remove(commands, group);
  command = commands.add("export", "Print the records of a volume, to keep them", group);
  add_cluster_uri(command, *uri, true);
  Commands::on_run(command, [&commands, uri] { return export_records(commands.globals(), *uri); });
  add_volume_import(commands, group);
  add_volume_maintenance_commands(commands, group);
}

}  // namespace remora::apps
