#pragma once

/// Code that the commands for clusters and volumes share.

#include <string>
#include <tl/expected.hpp>

#include <remora/volume/cluster.h>
#include <remora/volume/management.h>
#include <remora/volume/uri.h>
#include <remora/volume/volume.h>

#include "cli/command.h"

namespace remora::apps {

/// The positional URI of a cluster, or of a volume of it.
CLI::Option* add_cluster_uri(CLI::App* app, std::string& value, bool of_volume);

/// A cluster, and the volume that the URI names.
struct NamedVolume {
  volume::Cluster cluster;
  std::string volume{};
  std::string uri{};  ///< in full
};

/// Parses the URI. `wants_volume`: whether it must, or must not, name a volume.
[[nodiscard]] tl::expected<volume::VolumeUri, Failure> parse_cluster_uri(const std::string& text,
                                                                         bool wants_volume);
/// The same, and opens the store; the environment has the credentials for etcd.
[[nodiscard]] tl::expected<NamedVolume, Failure> open_cluster(const Globals& globals,
                                                              const std::string& uri,
                                                              bool wants_volume);

/// Claims a mirror, as whose only writer this process can write to it; a striped volume needs none.
[[nodiscard]] Status claim_if_mirror(const volume::Volume& volume);

/// The failure of a function of remora::volume, with its remedy.
[[nodiscard]] tl::unexpected<Failure> fail_in_cluster(const Error& error,
                                                      std::string_view context = {});
[[nodiscard]] tl::unexpected<Failure> fail_in_cluster(const volume::Failure& failure,
                                                      std::string_view context);

}  // namespace remora::apps
