/// In the place of volumes.cc and of the commands `cluster` and `volume`, in a program that is
/// built without remora::volume (REMORA_BUILD_VOLUMES): refuses what they do.

#include "common/without_volumes.h"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <strings.h>
#include <utility>

#include "cli/commands.h"
#include "cli/volumes.h"

namespace remora::apps {
namespace {

[[nodiscard]] auto refuse_volumes(const std::string& what) {
  return fail(ExitCode::kUsage, what + ": " + std::string{kWithoutVolumes});
}

/// The command is in no help, and takes any words.
void add_refused(Commands& commands, const std::string& name) {
  CLI::App* const command = commands.add(name, std::string{kWithoutVolumes});
  command->group("")->fallthrough(false)->prefix_command();
  Commands::on_run(command, [name]() -> Outcome { return refuse_volumes(name); });
}

}  // namespace

bool is_cluster_uri(std::string_view uri) noexcept {
  constexpr std::string_view kSchemes = "remora+";  // remora+etcd and remora+file, in any case
  return uri.size() >= kSchemes.size() &&
         ::strncasecmp(uri.data(), kSchemes.data(), kSchemes.size()) == 0;
}

std::string_view help_of_volume_uris() noexcept { return {}; }

tl::expected<void, Failure> check_volume_uri(const std::string& uri) { return refuse_volumes(uri); }

// check_volume_uri() takes no URI, so that there are no names of one.
Json volume_names(const std::string& /*uri*/) { return Json{}; }

tl::expected<std::unique_ptr<OpenedStore>, Failure> open_volume(std::unique_ptr<Engine> /*engine*/,
                                                                const Globals& /*globals*/,
                                                                const std::string& uri,
                                                                Rights /*rights*/,
                                                                std::string_view /*context*/) {
  return refuse_volumes(uri);
}

Outcome stat_in_cluster(const Globals& /*globals*/, const std::string& uri) {
  return refuse_volumes(uri);
}

std::vector<std::string> volumes_in(const std::string& /*cluster_uri*/,
                                    std::chrono::nanoseconds /*limit*/) {
  return {};
}

void add_cluster_commands(Commands& commands) { add_refused(commands, "cluster"); }

void add_volume_commands(Commands& commands) { add_refused(commands, "volume"); }

}  // namespace remora::apps
