#include "cli/command.h"

#include <CLI/CLI.hpp>
#include <array>
#include <charconv>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include <remora/config/server_config.h>
#include <remora/config/units.h>

#include "cli/volumes.h"

namespace remora::apps {

namespace {

/// The flags of this program that do what the library's remedy names; empty: none. The library does
/// not know the command line.
std::string_view flags_for(const Error& error) noexcept {
  const std::string_view operation = error.operation();
  if (error.code() == Code::kBusy && operation == "remove")
    return "'remora rm --now' takes it from them, '--when-unused' lets them keep it";
  if (error.reason() == Reason::kAuthentication)
    return "--client NAME and --key-file FILE name the client and its key";
  if (error.reason() == Reason::kNoAtomics) return "'remora create --atomics auto' creates one";
  if (error.code() == Code::kUnsupported && operation.starts_with("open over shm"))
    return "'remora create --shm' creates one";
  if (error.code() == Code::kNotFound && operation == "key file")
    return "--key-file FILE names another one";
  if (error.code() == Code::kUnsupported && operation == "create" &&
      error.subject().find("access list") != std::string_view::npos)
    return "--allow makes that list";
  return {};
}

}  // namespace

Failure::Failure(const Error& cause, std::string_view context)
    : exit_code{exit_code_of(cause)}, error{cause} {
  if (!context.empty()) text.append(context).append(": ");
  text += cause.message();
  if (const std::string_view flags = flags_for(cause); !flags.empty())
    text.append(" (").append(flags).append(")");
}

Json error_json(const Failure& failure, int exit_status) {
  Json error{{"code", to_string(failure.exit_code)},
             {"message", failure.text},
             {"exit_code", exit_status}};
  if (!failure.error) return error;
  error["code"] = to_string(failure.error->code());
  error["reason"] = to_string(failure.error->reason());
  error["operation"] = failure.error->operation();
  error["subject"] = failure.error->subject();
  error["server"] = failure.error->server();
  if (failure.error->has_place()) {
    error["offset"] = failure.error->offset_bytes();
    error["length"] = failure.error->length_bytes();
  }
  error["errno"] = failure.error->system_errno();
  return error;
}

CLI::Option* add_size(CLI::App* app, const std::string& name, std::uint64_t& value,
                      const std::string& help) {
  return app
      ->add_option_function<std::string>(
          name,
          [name, &value](const std::string& text) {
            const Result<std::uint64_t> parsed = config::parse_size(text);
            if (!parsed) throw CLI::ValidationError(name, config::explain_size(text));
            value = *parsed;
          },
          help)
      ->type_name("SIZE");
}

CLI::Option* add_duration(CLI::App* app, const std::string& name, std::chrono::nanoseconds& value,
                          const std::string& help) {
  return app
      ->add_option_function<std::string>(
          name,
          [name, &value](const std::string& text) {
            const auto parsed = config::parse_duration(text);
            if (!parsed) throw CLI::ValidationError(name, config::explain_duration(text));
            value = *parsed;
          },
          help)
      ->type_name("DURATION");
}

namespace {

std::optional<std::uint64_t> parse_word(std::string_view text) {
  const bool negative = text.starts_with('-');
  if (negative) text.remove_prefix(1);
  const bool hexadecimal = text.starts_with("0x") || text.starts_with("0X");
  if (hexadecimal) text.remove_prefix(2);
  std::uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value, hexadecimal ? 16 : 10);
  if (text.empty() || parsed.ec != std::errc{} || parsed.ptr != end) return std::nullopt;
  return negative ? std::uint64_t{0} - value : value;
}

}  // namespace

CLI::Option* add_word(CLI::App* app, const std::string& name, std::uint64_t& value,
                      const std::string& help) {
  return app
      ->add_option_function<std::string>(
          name,
          [name, &value](const std::string& text) {
            const auto parsed = parse_word(text);
            if (!parsed)
              throw CLI::ValidationError(
                  name, "'" + text + "' is not a number of 64 bits, decimal or 0x...");
            value = *parsed;
          },
          help)
      ->type_name("NUMBER");
}

CLI::Validator not_empty() {
  return CLI::Validator{
      [](const std::string& text) { return text.empty() ? "is empty" : std::string{}; }, ""};
}

CLI::Option* add_uri(CLI::App* app, std::string& value, bool of_server) {
  return app
      ->add_option("URI", value,
                   of_server ? "remora://HOST[:PORT][?transport=rdma|shm|tcp]"
                             : "remora://HOST[:PORT]/REGION[?transport=rdma|shm|tcp]")
      ->type_name("")
      ->required();
}

CLI::Option* add_store_uri(CLI::App* app, std::string& value) {
  return app
      ->add_option("URI", value,
                   "remora://HOST[:PORT]/REGION[?transport=rdma|shm|tcp]" +
                       std::string{help_of_volume_uris()})
      ->type_name("")
      ->required();
}

tl::expected<Uri, Failure> parse_uri(const std::string& text, bool wants_region) {
  const Result<Uri> uri = Uri::parse(text);
  if (!uri) {
    Failure why{uri.error()};
    why.exit_code = ExitCode::kUsage;
    return tl::make_unexpected(std::move(why));
  }
  if (wants_region && uri->region.empty()) {
    Uri with_region = *uri;
    with_region.region = "REGION";
    return fail(ExitCode::kUsage, text + " names no region; write '" + with_region.text() +
                                      "' ('remora ls " + uri->text() + "' shows them)");
  }
  if (!wants_region && !uri->region.empty()) {
    Uri server = *uri;
    server.region.clear();
    return fail(
        ExitCode::kUsage,
        text + " names a region, and this command wants a server; write '" + server.text() + "'");
  }
  return *uri;
}

Result<Engine> open_engine(const Globals& globals, EngineOptions options) {
  options.client_name = globals.client.empty() ? "remora-cli" : globals.client;
  if (!globals.key_file.empty()) {
    if (globals.client.empty())
      return Error{Code::kInvalidArgument, "--key-file without --client: whose key is it?"}
          .with_subject(globals.key_file);
    auto key = config::read_key_file(globals.key_file);
    if (!key) return key.error();
    options.key = *key;
  }
  options.operation_deadline = globals.timeout;
  options.control_deadline = globals.timeout;
  // A command ends with its server: its user notices that at once, and may run it again.
  options.reconnect_for = std::chrono::seconds{0};
  return Engine::open(options);
}

tl::expected<Session, Failure> open_session(const Globals& globals, const std::string& uri) {
  const auto engine = open_engine(globals);
  if (!engine) return fail(engine.error());
  auto session = engine->connect(uri);
  if (!session) return fail(session.error());
  return std::move(*session);
}

void print_json(const Json& document) {
  std::cout << document.dump(2, ' ', false, Json::error_handler_t::replace) << '\n';
}

}  // namespace remora::apps
