/// remora: creates, fills, reads and measures remote memory from a shell.

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <iostream>
#include <memory>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <string>

#include "cli/command.h"
#include "cli/interrupt.h"
#include "common/version.h"

namespace remora::apps {
namespace {

constexpr const char* kFooter =
    "Exit codes: 0 done, 1 cas: not swapped, 2 usage, 3 not there or not allowed, 4 no connection\n"
    "or timed out, 5 local file or memory, 6 indeterminate, 7 wrong configuration file,\n"
    "70 internal error, 128 + N ended by signal N.";

void complain(const std::string& text) { std::cerr << "remora: " << text << '\n'; }

void log_to_stderr(bool verbose) {
  auto logger =
      std::make_shared<spdlog::logger>("remora", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_pattern("remora: %l: %v");
  logger->set_level(verbose ? spdlog::level::debug : spdlog::level::err);
  spdlog::set_default_logger(std::move(logger));
}

Json to_json(const Failure& failure) {
  Json error{{"message", failure.text}, {"exit_code", to_int(failure.exit_code)}};
  if (failure.error) {
    error["code"] = to_string(failure.error->code());
    error["reason"] = to_string(failure.error->reason());
    error["operation"] = failure.error->operation();
    error["subject"] = failure.error->subject();
    error["errno"] = failure.error->system_errno();
  }
  return Json{{"error", std::move(error)}};
}

/// What was printed must have arrived: a full disk behind `>` is a failure too.
int finish(int exit_code) {
  errno = 0;
  std::cout.flush();
  if (std::cout.good() && std::ferror(stdout) == 0) return exit_code;
  complain(std::string{"standard output: "} +
           (errno != 0 ? std::strerror(errno) : "could not be written"));
  return exit_code == 0 ? to_int(ExitCode::kLocal) : exit_code;
}

int run_action(const Globals& globals) {
  log_to_stderr(globals.verbose);
  const Outcome outcome = chosen_action()();
  if (outcome) return finish(interrupted() != 0 ? 128 + interrupted() : to_int(*outcome));
  complain(outcome.error().text);
  if (globals.json) print_json(to_json(outcome.error()));
  return finish(interrupted() != 0 ? 128 + interrupted() : to_int(outcome.error().exit_code));
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

int parse_and_run(int argc, char** argv) {
  CLI::App app{"Remote memory from a shell. 'remora COMMAND --help' explains a command."};
  app.footer(kFooter);
  app.require_subcommand(1);
  app.set_version_flag("--version", "remora " + std::string{kVersion});
  Commands commands{app};
  app.add_flag("--json", commands.globals().json, "Print one JSON document on standard output");
  app.add_flag("-v,--verbose", commands.globals().verbose, "Log what the engine does to stderr");
  add_duration(&app, "--timeout", commands.globals().timeout,
               "Deadline of each request and of each operation (10s)");
  add_admin_commands(commands);
  add_transfer_commands(commands);
  add_access_commands(commands);
  add_bench_command(commands);
  add_config_commands(commands);
  add_version_command(commands);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return finish(app.exit(error));
    complain(std::string{error.what()} + "; try 'remora --help'");
    return to_int(ExitCode::kUsage);
  }
  return run_action(commands.globals());
}

}  // namespace
}  // namespace remora::apps

int main(int argc, char** argv) {
  try {
    return remora::apps::parse_and_run(argc, argv);
  } catch (const std::exception& exception) {
    std::cerr << "remora: internal error: " << exception.what() << '\n';
    return remora::apps::to_int(remora::apps::ExitCode::kInternal);
  }
}
