#include <nlohmann/json.hpp>
#include <utility>

#include <remora/volume/management.h>

#include "record_reader.h"
#include "volume_builder.h"

namespace remora::volume {

Managed<std::string> export_volume(const Cluster& cluster, std::string_view name) {
  const auto layout = cluster.layout(name);
  if (!layout) return failure(layout.error());
  nlohmann::ordered_json json{{"version", kRecordVersion},
                              {"generation", hexadecimal(layout->generation)},
                              {"volume", nlohmann::ordered_json::parse(layout->volume_value)}};
  auto& groups = json["groups"] = nlohmann::ordered_json::array();
  for (const std::string& value : layout->group_values)
    groups.push_back(nlohmann::ordered_json::parse(value));
  return json.dump(2) + "\n";
}

}  // namespace remora::volume
