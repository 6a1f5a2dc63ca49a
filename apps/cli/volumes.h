#pragma once

/// What commands that are not about clusters need of them. volumes.cc and cluster_report.cc have
/// these functions. In a program that is built without volumes (CMakeLists.txt) without_volumes.cc
/// has them, and the commands `cluster` and `volume`: no other source knows which it is.

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <vector>

#include <remora/remora.h>

#include "cli/command.h"
#include "cli/opened_store.h"

namespace remora::apps {

/// Whether the URI is that of a cluster or of a volume, right or wrong.
[[nodiscard]] bool is_cluster_uri(std::string_view uri) noexcept;
/// What the help of a region's URI says of those of volumes; empty: there are none.
[[nodiscard]] std::string_view help_of_volume_uris() noexcept;
/// Refuses a URI of a cluster that is none, or that names no volume.
[[nodiscard]] tl::expected<void, Failure> check_volume_uri(const std::string& uri);
/// As store_names() says, of a URI that check_volume_uri() takes.
[[nodiscard]] Json volume_names(const std::string& uri);
/// As OpenedStore::open() says, of such a URI.
[[nodiscard]] tl::expected<std::unique_ptr<OpenedStore>, Failure> open_volume(
    std::unique_ptr<Engine> engine, const Globals& globals, const std::string& uri, Rights rights,
    std::string_view context);
/// `stat` of a URI that names a cluster, or a volume of one.
Outcome stat_in_cluster(const Globals& globals, const std::string& uri);
/// The names of the volumes of a cluster; none if its store does not answer within `limit`.
[[nodiscard]] std::vector<std::string> volumes_in(const std::string& cluster_uri,
                                                  std::chrono::nanoseconds limit);

}  // namespace remora::apps
