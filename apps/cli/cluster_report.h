#pragma once

/// What the commands print about clusters and volumes: `stat`, `cluster status`, `volume stat`, and
/// the commands that change a volume.

#include <string>
#include <string_view>
#include <vector>

#include <remora/volume/cluster.h>
#include <remora/volume/records.h>

#include "cli/command.h"

namespace remora::apps {

/// "striped" or "mirror:2", as --kind takes it.
[[nodiscard]] std::string kind_text(const volume::VolumeRecord& record);
[[nodiscard]] Json volume_json(const volume::VolumeRecord& record);
/// One line, or the JSON of the record. `what`: "created".
void print_volume(const Globals& globals, const volume::VolumeRecord& record,
                  std::string_view what);

/// The servers of a cluster, and the number of its volumes. `command`: "cluster status".
Outcome show_cluster(const Globals& globals, const std::string& uri, std::string_view command);
/// A volume, its servers with their free memory, and the members of its groups.
Outcome show_volume(const Globals& globals, const std::string& uri, std::string_view command);

}  // namespace remora::apps
