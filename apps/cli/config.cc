/// remora config check, show, init, schema: checks and shows a server's file, and makes a first
/// one.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <remora/config/describe.h>
#include <remora/config/initial_file.h>
#include <remora/config/load.h>
#include <remora/config/memory_limit.h>
#include <remora/config/printable.h>
#include <remora/config/units.h>

#include "cli/command.h"
#include "cli/commands.h"

namespace remora::apps {
namespace {

using config::Diagnostic;
using config::Diagnostics;
using config::ServerConfig;

/// Prints every fault; the text of the error only counts them.
Outcome refuse(const Globals& globals, const std::string& file, const Diagnostics& faults) {
  const std::size_t count = faults.size() + faults.dropped();
  const Failure failure{ExitCode::kConfiguration,
                        file + ": " + std::to_string(count) + (count == 1 ? " fault" : " faults")};
  if (globals.json) {
    Json list = Json::array();
    for (const Diagnostic& fault : faults)
      list.push_back({{"file", fault.file},
                      {"line", fault.line},
                      {"column", fault.column},
                      {"key", fault.key},
                      {"message", fault.message}});
    print_json(Json{{"ok", false},
                    {"faults", std::move(list)},
                    {"error", error_json(failure, to_int(failure.exit_code))}});
  }
  std::cerr << faults.to_string() << "remora: " << config::printable(failure.text) << '\n';
  return failure.exit_code;
}

Outcome check(const Globals& globals, const std::string& file) {
  const auto loaded = config::load_server(file);
  if (!loaded) return refuse(globals, file, loaded.error());
  std::vector<std::string> warnings = config::exposed_secrets(*loaded);
  if (auto exceeded = config::exceeded_memory_limit(*loaded))
    warnings.push_back(std::move(*exceeded));
  if (globals.json)
    print_json(Json{{"ok", true}, {"faults", Json::array()}, {"warnings", warnings}});
  else
    std::cout << config::printable(file) << ": ok\n";
  for (const std::string& warning : warnings)
    std::cerr << "remora: warning: " << config::printable(warning) << '\n';
  return ExitCode::kOk;
}

std::string text(std::string_view value) { return std::string{value}; }

Json access_of(const config::RegionConfig& region) {
  Json list = Json::array();
  for (const config::RegionAccess& access : region.access) {
    Json rights = Json::array();
    if (access.read) rights.push_back("read");
    if (access.write) rights.push_back("write");
    if (access.atomic) rights.push_back("atomic");
    if (access.admin) rights.push_back("admin");
    list.push_back({{"client", access.client}, {"rights", std::move(rights)}});
  }
  return list;
}

Json clients_of(const ServerConfig& server) {
  Json list = Json::array();
  for (const config::ClientConfig& client : server.clients)
    list.push_back({{"name", client.name},
                    {"has_previous_key", client.previous_key.has_value()},
                    {"key_file", client.key_file},
                    {"previous_key_file", client.previous_key_file},
                    {"create", client.create},
                    {"admin", client.admin},
                    {"quota_bytes", client.quota_bytes}});
  return list;
}

Json regions_of(const ServerConfig& server) {
  Json list = Json::array();
  for (const config::RegionConfig& region : server.regions) {
    Json rights = Json::array();
    if (region.rights.read) rights.push_back("read");
    if (region.rights.write) rights.push_back("write");
    if (region.rights.atomic) rights.push_back("atomic");
    list.push_back({{"name", region.name},
                    {"size_bytes", region.size_bytes},
                    {"block_bytes", region.block_bytes},
                    {"rights", std::move(rights)},
                    {"atomics", region.atomics},
                    {"shm", region.shm},
                    {"access", access_of(region)}});
  }
  return list;
}

Json to_json(const ServerConfig& server) {
  const auto seconds = [](std::chrono::nanoseconds value) {
    return std::chrono::duration<double>(value).count();
  };
  Json origins = Json::object();
  for (const auto& [key, origin] : server.origins)
    origins[key] = origin.file + ":" + std::to_string(origin.line);
  return Json{{"listen", {{"address", server.listen.address}, {"port", server.listen.port}}},
              {"transports",
               {{"rdma", text(to_string(server.transports.rdma))},
                {"rdma_devices", server.transports.rdma_devices},
                {"rdma_protection", text(to_string(server.transports.rdma_protection))},
                {"shm", text(to_string(server.transports.shm))},
                {"tcp", text(to_string(server.transports.tcp))},
                {"tcp_threads", server.transports.tcp_threads},
                {"tcp_spin_seconds", seconds(server.transports.tcp_spin)}}},
              {"rdma", to_string(server.rdma)},
              {"pool",
               {{"size_bytes", server.pool.size_bytes},
                {"piece_bytes", server.pool.piece_bytes},
                {"huge_pages", text(to_string(server.pool.huge_pages))},
                {"populate", server.pool.populate}}},
              {"regions", regions_of(server)},
              {"auth", server.auth ? Json(text(to_string(*server.auth))) : Json(nullptr)},
              {"clients", clients_of(server)},
              {"limits",
               {{"sessions_max", server.limits.sessions_max},
                {"regions_max", server.limits.regions_max},
                {"session_regions_max", server.limits.session_regions_max},
                {"session_memory_bytes", server.limits.session_memory_bytes},
                {"handshake_timeout_seconds", seconds(server.limits.handshake_timeout)},
                {"request_timeout_seconds", seconds(server.limits.request_timeout)},
                {"session_lease_seconds", seconds(server.limits.session_lease)},
                {"session_keep_seconds", seconds(server.limits.session_keep)},
                {"drain_timeout_seconds", seconds(server.limits.drain_timeout)},
                {"pending_handshakes_max", server.limits.pending_handshakes_max},
                {"requests_per_second", server.limits.requests_per_second},
                {"resumes_per_minute", server.limits.resumes_per_minute},
                {"revoke_grace_seconds", seconds(server.limits.revoke_grace)},
                {"registrations_max", server.limits.registrations_max},
                {"windows_max", server.limits.windows_max},
                {"registered_bytes_max", server.limits.registered_bytes_max}}},
              {"log",
               {{"level", text(to_string(server.log.level))},
                {"format", text(to_string(server.log.format))}}},
              {"metrics",
               {{"address", server.metrics.address ? Json(*server.metrics.address) : Json()},
                {"user", server.metrics.user},
                {"asks_for_token", !server.metrics.token.empty()},
                {"asks_for_password", !server.metrics.password.empty()},
                {"token_file", server.metrics.token_file},
                {"password_file", server.metrics.password_file}}},
              {"origins", std::move(origins)}};
}

Outcome show(const Globals& globals, const std::string& file) {
  const auto loaded = config::load_server(file);
  if (!loaded) return refuse(globals, file, loaded.error());
  if (globals.json)
    print_json(to_json(*loaded));
  else
    std::cout << config::show(*loaded);
  return ExitCode::kOk;
}

struct InitOptions {
  std::string file;
  config::InitialChoices choices;
};

/// Creates a file with `text`; an existing file is not overwritten.
Status write_new_file(const std::string& path, std::string_view text) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (fd < 0) {
    const Code code = errno == EEXIST ? Code::kAlreadyExists : Code::kSystem;
    return Error{code, "make the configuration file"}.with_subject(path).with_errno(errno);
  }
  bool good = true;
  while (good && !text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    good = written >= 0;
    if (good) text.remove_prefix(static_cast<std::size_t>(written));
  }
  const int failed = good ? 0 : errno;
  if (::close(fd) == 0 && good) return ok_status();
  const int number = failed != 0 ? failed : errno;
  ::unlink(path.c_str());  // a part of a file is useless
  return Error{Code::kSystem, "write the configuration file"}.with_subject(path).with_errno(number);
}

/// The fault that the user's choices cause, such as an invalid address; a key file may still be
/// missing.
std::optional<std::string> fault_of(const std::string& text) {
  const auto loaded = config::parse_server(text, "the new file");
  if (loaded) return std::nullopt;
  for (const Diagnostic& fault : loaded.error())
    if (!fault.key.ends_with(".key_file")) return fault.key + ": " + fault.message;
  return std::nullopt;
}

Outcome init(const Globals& globals, const InitOptions& options) {
  const std::string text = config::initial_file(config::this_machine(), options.choices);
  if (const auto fault = fault_of(text)) return fail(ExitCode::kUsage, "config init: " + *fault);
  if (options.file.empty()) {
    if (globals.json)
      print_json(Json{{"text", text}});
    else
      std::cout << text;
    return ExitCode::kOk;
  }
  if (const Status written = write_new_file(options.file, text); !written) {
    Failure why{written.error()};
    why.exit_code = ExitCode::kLocal;
    if (written.error().code() == Code::kAlreadyExists)
      why.text += "; a file that is there is not overwritten: take another name";
    return tl::make_unexpected(std::move(why));
  }
  if (globals.json) {
    print_json(Json{{"file", options.file}});
    return ExitCode::kOk;
  }
  std::cout << "wrote " << config::printable(options.file) << '\n';
  if (!config::is_loopback(options.choices.listen_address))
    std::cout << "clients need a key: 'remora key generate " << config::kInitialKeyFile
              << "' beside that file makes the first one\n";
  return ExitCode::kOk;
}

void add_config_init(Commands& commands, CLI::App* group) {
  const auto options = std::make_shared<InitOptions>();
  CLI::App* const command = commands.add(
      "init", "Print a commented file for this machine, or write it to a file that is not there",
      group);
  command->add_option("FILE", options->file, "YAML file to make")
      ->type_name("")
      ->check(not_empty());
  command
      ->add_option("--listen", options->choices.listen_address,
                   "Address to listen on; other hosts need keys, if they reach it (127.0.0.1)")
      ->type_name("ADDRESS")
      ->check(not_empty());
  add_size(command, "--pool", options->choices.pool_bytes,
           "Memory of all regions together (a quarter of the memory that is available)");
  Commands::on_run(command, [&commands, options] { return init(commands.globals(), *options); });
}

}  // namespace

void add_config_commands(Commands& commands) {
  const auto file = std::make_shared<std::string>();
  CLI::App* const group =
      commands.add("config", "Check, show or begin a server's configuration file");
  group->require_subcommand(1);

  CLI::App* command = commands.add("check", "List every fault of the file", group);
  command->add_option("FILE", *file, "YAML file")->type_name("")->required();
  Commands::on_run(command, [&commands, file] { return check(commands.globals(), *file); });

  command = commands.add("show", "Print the effective values and where each came from", group);
  command->add_option("FILE", *file, "YAML file")->type_name("")->required();
  Commands::on_run(command, [&commands, file] { return show(commands.globals(), *file); });

  add_config_init(commands, group);

  command = commands.add("schema", "Print a JSON Schema of the file, for editors", group);
  Commands::on_run(command, []() -> Outcome {
    std::cout << config::reference_json_schema();
    return ExitCode::kOk;
  });
}

}  // namespace remora::apps
