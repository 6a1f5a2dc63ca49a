/// remora doctor: finds the faults that prevent RDMA, a server or the path to one from working,
/// with a remedy for each.

#include <CLI/CLI.hpp>
#include <array>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

#include <remora/config/load.h>

#include "cli/command.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "common/version.h"
#include "doctor/address_mask.h"
#include "doctor/checks.h"
#include "doctor/config_check.h"
#include "doctor/path_check.h"
#include "doctor/report.h"

namespace remora::apps {
namespace {

struct DoctorOptions {
  std::string uri;
  std::string config_file;
  std::string report_file;
  bool strict = false;
  bool anonymous = false;
};

/// All findings, and the options for which they were made.
struct Examination {
  std::optional<Uri> uri{};
  std::optional<config::ServerConfig> server{};
  std::vector<doctor::DeviceView> devices{};
  doctor::Findings findings{};

  [[nodiscard]] doctor::Needs needs() const {
    doctor::Needs wanted;
    if (server) wanted = {.server = &*server, .port = server->listen.port};
    if (uri && !server) wanted.port = uri->port;
    return wanted;
  }
};

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return {};
  return name.data();
}

doctor::AddressMask mask_of(const Examination& examination) {
  std::vector<std::string> hosts;
  const std::string own = host_name();
  hosts.push_back(own);
  hosts.push_back(own.substr(0, own.find('.')));
  if (examination.uri) hosts.push_back(examination.uri->host);
  return doctor::AddressMask{std::move(hosts)};
}

void mask(doctor::Findings& findings, doctor::AddressMask& with) {
  for (doctor::Finding& finding : findings) {
    for (std::string* const text : {&finding.found, &finding.why, &finding.command})
      *text = with.apply(*text);
    for (std::string& line : finding.details) line = with.apply(line);
  }
}

/// Stores the file's faults, or its configuration.
void load_config(const DoctorOptions& options, Examination& examination) {
  auto loaded = config::load_server(options.config_file);
  if (loaded)
    examination.server = std::move(*loaded);
  else
    append(examination.findings, doctor::config_faults(options.config_file, loaded.error()));
}

Status write_report(const std::string& path, const std::string& text) {
  auto output = Output::open(path);
  if (!output) return output.error();
  if (const Status written = output->write(std::as_bytes(std::span{text})); !written)
    return written.error();
  return output->commit();
}

void examine(const Globals& globals, const DoctorOptions& options, Examination& examination,
             const doctor::Machine& machine) {
  examination.devices = doctor::read_devices(machine.files);
  doctor::ask_verbs(examination.devices);
  if (!options.config_file.empty()) load_config(options, examination);
  if (examination.server)
    append(examination.findings,
           doctor::check_config(machine, *examination.server, examination.devices));
  append(examination.findings,
         doctor::check_machine(machine, examination.needs(), examination.devices));
  if (!examination.uri) return;
  const auto engine = open_engine(globals);
  if (engine)
    append(examination.findings, doctor::check_path(*engine, *examination.uri));
  else
    examination.findings.push_back(doctor::Finding{.id = "path",
                                                   .colour = doctor::Colour::kRed,
                                                   .found = engine.error().message(),
                                                   .why = "no connection can be tried"});
}

ExitCode exit_code_for(const doctor::Findings& findings, bool strict) {
  switch (worst(findings)) {
    case doctor::Colour::kRed: return ExitCode::kRefused;
    case doctor::Colour::kYellow: return strict ? ExitCode::kNotSwapped : ExitCode::kOk;
    default: return ExitCode::kOk;
  }
}

Outcome run_doctor(const Globals& globals, const DoctorOptions& options) {
  if (globals.json && options.report_file == "-")
    return fail(ExitCode::kUsage, "--json and --report -: both would be on standard output");
  Examination examination;
  if (!options.uri.empty()) {
    const Result<Uri> uri = Uri::parse(options.uri);
    if (!uri) return tl::make_unexpected(parse_uri(options.uri, true).error());
    examination.uri = *uri;
  }
  const doctor::Machine machine{.calls = doctor::system_calls()};
  examine(globals, options, examination, machine);
  doctor::AddressMask with = mask_of(examination);
  if (options.anonymous) mask(examination.findings, with);
  if (!options.report_file.empty()) {
    std::string text = doctor::bundle_text(machine, examination.needs(), examination.devices,
                                           examination.findings, kVersion);
    if (options.anonymous) text = with.apply(text);
    if (const Status written = write_report(options.report_file, text); !written)
      return fail(written.error(), "doctor --report " + options.report_file);
  }
  if (globals.json)
    print_json(doctor::findings_json(examination.findings));
  else if (options.report_file != "-")
    doctor::print_findings(std::cout, examination.findings);
  return exit_code_for(examination.findings, options.strict);
}

}  // namespace

void add_doctor_command(Commands& commands) {
  const auto options = std::make_shared<DoctorOptions>();
  CLI::App* const command = commands.add(
      "doctor", "Check this machine, a server's file and the path to a server; say what mends it");
  command->add_option("URI", options->uri, "remora://HOST[:PORT][/REGION][?transport=rdma|shm|tcp]")
      ->type_name("")
      ->check(not_empty());
  command
      ->add_option("--config", options->config_file,
                   "Whether a server with this file starts here, and what it pins")
      ->type_name("FILE")
      ->check(not_empty());
  command
      ->add_option("--report", options->report_file,
                   "Write a bundle for a bug report, without secrets, to a file (-: to standard "
                   "output instead of the findings)")
      ->type_name("FILE")
      ->check(not_empty());
  command->add_flag("--anonymous", options->anonymous,
                    "Replace addresses and host names by names that say nothing of the site");
  command->add_flag("--strict", options->strict, "Exit with 1 when something is yellow");
  Commands::on_run(command,
                   [&commands, options] { return run_doctor(commands.globals(), *options); });
}

}  // namespace remora::apps
