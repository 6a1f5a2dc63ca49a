/// remora key generate: makes a key for a client and a server; remora usage: shows how much memory
/// of a server is in use.

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include <remora/config/printable.h>
#include <remora/config/secret_key.h>
#include <remora/config/units.h>

#include "cli/command.h"
#include "cli/commands.h"

namespace remora::apps {
namespace {

using config::format_size;

Outcome generate(const Globals& globals, const std::string& file) {
  const auto key = config::SecretKey::generate();
  if (!key) return fail(key.error());
  if (file.empty()) {
    if (globals.json)
      print_json(Json{{"key", key->to_hex()}});
    else
      std::cout << key->to_hex() << '\n';
    return ExitCode::kOk;
  }
  if (const Status written = config::write_key_file(file, *key); !written) {
    Failure why{written.error()};
    why.exit_code = ExitCode::kLocal;
    if (written.error().code() == Code::kAlreadyExists)
      why.text += "; a key that is there is not overwritten: take another name";
    return tl::make_unexpected(std::move(why));
  }
  if (globals.json)
    print_json(Json{{"file", file}});
  else
    std::cout << "wrote a key to " << config::printable(file) << ", which only you may read\n";
  return ExitCode::kOk;
}

std::string quota_of(const Usage& usage) {
  return usage.client_quota_bytes == 0 ? "no quota" : "of " + format_size(usage.client_quota_bytes);
}

Outcome show_usage(const Globals& globals, const std::string& text) {
  const auto uri = parse_uri(text, false);
  if (!uri) return tl::make_unexpected(uri.error());
  const auto engine = open_engine(globals);
  if (!engine) return fail(engine.error());
  const auto session = engine->connect(text);
  if (!session) return fail(session.error(), text);
  const auto usage = session->usage();
  if (!usage) return fail(usage.error(), "usage " + text);
  if (globals.json) {
    print_json(Json{{"client_bytes", usage->client_bytes},
                    {"client_quota_bytes", usage->client_quota_bytes},
                    {"pool_bytes", usage->pool_bytes},
                    {"pool_used_bytes", usage->pool_used_bytes},
                    {"pool_freeing_bytes", usage->pool_freeing_bytes},
                    {"sessions", usage->sessions},
                    {"grants", usage->grants}});
    return ExitCode::kOk;
  }
  std::cout << "own regions  " << format_size(usage->client_bytes) << ' ' << quota_of(*usage)
            << '\n'
            << "pool         " << format_size(usage->pool_used_bytes) << " of "
            << format_size(usage->pool_bytes) << ", " << format_size(usage->pool_freeing_bytes)
            << " being zeroed\n"
            << "sessions     " << usage->sessions << '\n';
  return ExitCode::kOk;
}

}  // namespace

void add_key_commands(Commands& commands) {
  const auto file = std::make_shared<std::string>();
  CLI::App* const group = commands.add("key", "Make a key for 'auth: keys'");
  group->require_subcommand(1);
  CLI::App* command =
      commands.add("generate", "Print a new key, or write it to a file that is not there", group);
  command->add_option("FILE", *file, "made readable by its owner alone")
      ->type_name("")
      ->check(not_empty());
  Commands::on_run(command, [&commands, file] { return generate(commands.globals(), *file); });

  const auto uri = std::make_shared<std::string>();
  command = commands.add("usage", "Memory of a server in use, by our own regions and by all");
  add_uri(command, *uri, true);
  Commands::on_run(command, [&commands, uri] { return show_usage(commands.globals(), *uri); });
}

}  // namespace remora::apps
