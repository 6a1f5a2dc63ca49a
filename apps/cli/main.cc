/// remora: creates, fills, reads and measures remote memory from a shell.

#include <CLI/CLI.hpp>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <string>
#include <string_view>

#include <remora/config/printable.h>

#include "cli/command.h"
#include "cli/commands.h"
#include "cli/complete.h"
#include "cli/interrupt.h"
#include "common/standard_streams.h"
#include "common/usage_error.h"
#include "common/version.h"

namespace remora::apps {
namespace {

constexpr const char* kFooter =
    "Exit codes: 0 done, 1 cas: not swapped, doctor --strict: a warning, 2 usage, 3 not there or "
    "not\n"
    "allowed, doctor: a fault, 4 no connection or timed out, 5 local file or memory,\n"
    "6 indeterminate, 7 wrong configuration file, 8 --verify: the bytes differ, 70 internal "
    "error,\n"
    "128 + N ended by signal N.";

/// Prints one line on stderr. It may contain names from files, a server or a user.
void complain(const std::string& text) {
  std::cerr << "remora: " << config::printable(text) << '\n';
}

void log_to_stderr(bool verbose) {
  auto logger =
      std::make_shared<spdlog::logger>("remora", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_pattern("remora: %l: %v");
  logger->set_level(verbose ? spdlog::level::debug : spdlog::level::err);
  spdlog::set_default_logger(std::move(logger));
}

/// Checks standard output: a full disk behind `>` is a failure, too.
int finish(int exit_code) {
  errno = 0;
  std::cout.flush();
  if (std::cout.good() && std::ferror(stdout) == 0) return exit_code;
  complain(std::string{"standard output: "} +
           (errno != 0 ? std::strerror(errno) : "could not be written"));
  return exit_code == 0 ? to_int(ExitCode::kLocal) : exit_code;
}

/// Prints the message for a person and, with --json, the document for a script.
int finish(const Failure& failure, bool json) {
  const int status = interrupted() != 0 ? 128 + interrupted() : to_int(failure.exit_code);
  // Silent, as other programs whose reader has gone.
  if (interrupted() != SIGPIPE) complain(failure.text);
  if (json) print_json(Json{{"error", error_json(failure, status)}});
  return finish(status);
}

int run_action(const Globals& globals) {
  log_to_stderr(globals.verbose);
  const Outcome outcome = chosen_action()();
  if (!outcome) return finish(outcome.error(), globals.json);
  return finish(interrupted() != 0 ? 128 + interrupted() : to_int(*outcome));
}

/// Whether the line contains --json, even if it cannot be parsed.
bool wants_json(int argc, char** argv) {
  for (int i = 1; i < argc && std::string_view{argv[i]} != "--"; ++i)
    if (std::string_view{argv[i]} == "--json") return true;
  return false;
}

void add_version_command(Commands& commands) {
  CLI::App* const command = commands.add("version", "Print the version");
  Commands::on_run(command, [&commands]() -> Outcome {
    if (commands.globals().json)
      print_json(Json{{"version", kVersion}});
    else
      std::cout << "remora " << kVersion << '\n';
    return ExitCode::kOk;
  });
}

/// Whether the line has no command and no other fault: then the user wants the list of commands.
bool asks_for_nothing(const CLI::App& app, const CLI::ParseError& error) {
  return dynamic_cast<const CLI::RequiredError*>(&error) != nullptr &&
         app.get_subcommands().empty() && app.remaining().empty();
}

int parse_and_run(int argc, char** argv) {
  CLI::App app{"Remote memory from a shell. 'remora COMMAND --help' explains a command.", "remora"};
  app.footer(kFooter);
  app.require_subcommand(1);
  app.set_version_flag("--version", "remora " + std::string{kVersion});
  Commands commands{app};
  app.add_flag("--json", commands.globals().json, "Print one JSON document on standard output");
  app.add_flag("-v,--verbose", commands.globals().verbose, "Log what the engine does to stderr");
  add_duration(&app, "--timeout", commands.globals().timeout,
               "Deadline of each request and of each operation (10s)");
  app.add_option("--client", commands.globals().client, "Name that the server knows our key by")
      ->type_name("NAME")
      ->envname("REMORA_CLIENT");
  app.add_option("--key-file", commands.globals().key_file,
                 "File with that key ('remora key generate FILE' makes one)")
      ->type_name("FILE")
      ->check(not_empty())
      ->envname("REMORA_KEY_FILE");
  add_admin_commands(commands);
  add_cluster_commands(commands);
  add_volume_commands(commands);
  add_administration_commands(commands);
  add_transfer_commands(commands);
  add_access_commands(commands);
  add_bench_command(commands);
  add_top_command(commands);
  add_doctor_command(commands);
  add_config_commands(commands);
  add_key_commands(commands);
  add_version_command(commands);
  if (argc > 1 && std::string_view{argv[1]} == kCompleteWord) {
    log_to_stderr(false);
    print_completion(complete(app, {argv + 2, argv + argc}));
    return finish(to_int(ExitCode::kOk));
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return finish(app.exit(error));
    const bool json = wants_json(argc, argv);
    if (!json && asks_for_nothing(app, error)) std::cout << app.help();
    return finish(Failure{ExitCode::kUsage, explain_usage(app, error, "remora")}, json);
  }
  return run_action(commands.globals());
}

}  // namespace
}  // namespace remora::apps

int main(int argc, char** argv) {
  remora::apps::open_closed_standard_streams();
  try {
    return remora::apps::parse_and_run(argc, argv);
  } catch (const std::exception& exception) {
    using remora::apps::ExitCode;
    const std::string text = std::string{"internal error: "} + exception.what();
    return remora::apps::finish(remora::apps::Failure{ExitCode::kInternal, text},
                                remora::apps::wants_json(argc, argv));
  }
}
