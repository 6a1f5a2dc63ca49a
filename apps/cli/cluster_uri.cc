#include "cli/cluster_uri.h"

#include <CLI/CLI.hpp>
#include <utility>

#include <remora/volume/remedy.h>

namespace remora::apps {

CLI::Option* add_cluster_uri(CLI::App* app, std::string& value, bool of_volume) {
  return app
      ->add_option("URI", value,
                   of_volume ? "remora+etcd://HOST[:PORT][,...]/CLUSTER/VOLUME, or "
                               "remora+file:///PATH/NAME.json/VOLUME"
                             : "remora+etcd://HOST[:PORT][,...]/CLUSTER, or "
                               "remora+file:///PATH/NAME.json")
      ->type_name("")
      ->required();
}

tl::expected<volume::VolumeUri, Failure> parse_cluster_uri(const std::string& text,
                                                           bool wants_volume) {
  auto uri = volume::parse_uri(text);
  if (!uri) {
    Failure why = fail_in_cluster(uri.error()).value();
    why.exit_code = ExitCode::kUsage;
    return tl::make_unexpected(std::move(why));
  }
  if (wants_volume && uri->volume.empty()) {
    volume::VolumeUri example = *uri;
    example.volume = "VOLUME";
    return fail(ExitCode::kUsage, text + " names no volume; write '" + example.text() +
                                      "' ('remora volume ls " + uri->text() + "' shows them)");
  }
  if (!wants_volume && !uri->volume.empty()) {
    volume::VolumeUri shorter = *uri;
    shorter.volume.clear();
    return fail(
        ExitCode::kUsage,
        text + " names a volume, and this command wants a cluster; write '" + shorter.text() + "'");
  }
  return std::move(*uri);
}

tl::expected<NamedVolume, Failure> open_cluster(const Globals& globals, const std::string& text,
                                                bool wants_volume) {
  const auto uri = parse_cluster_uri(text, wants_volume);
  if (!uri) return tl::make_unexpected(uri.error());
  const auto options = volume::store_options_of_environment();
  if (!options) return fail_in_cluster(options.error());
  auto cluster = volume::Cluster::open(*uri, *options, globals.timeout);
  if (!cluster) return fail_in_cluster(cluster.error());
  return NamedVolume{std::move(*cluster), uri->volume, uri->text()};
}

Status claim_if_mirror(const volume::Volume& volume) {
  return volume.record().kind == volume::Kind::kMirror ? volume.claim() : Status{};
}

tl::unexpected<Failure> fail_in_cluster(const Error& error, std::string_view context) {
  Failure why{error, context};
  const std::string_view remedy = volume::remedy(error);
  if (!remedy.empty()) why.text.append("; ").append(remedy);
  return tl::make_unexpected(std::move(why));
}

tl::unexpected<Failure> fail_in_cluster(const volume::Failure& failure, std::string_view context) {
  Failure why = fail_in_cluster(failure.error, context).value();
  if (!failure.detail.empty() && why.text.find(failure.detail) == std::string::npos)
    why.text.append(" (").append(failure.detail).append(")");
  return tl::make_unexpected(std::move(why));
}

}  // namespace remora::apps
