#include "remove_remains.h"

#include <string>
#include <vector>

#include "volume_builder.h"

namespace remora::volume::detail {

Managed<void> remove_extra_groups(const Cluster& cluster, VolumeLayout& layout) {
  const std::string& name = layout.volume.name;
  std::vector<std::string> keys;
  for (const GroupRecord& group : layout.extra_groups)
    keys.push_back(cluster.keys().group(name, group.index));
  const Status removed = remove_group_keys(cluster,
                                           {cluster.generation_is(layout.generation),
                                            {cluster.keys().volume(name), layout.volume_value}},
                                           keys);
  if (!removed) return failure(removed.error());
  layout.extra_groups.clear();
  return {};
}

}  // namespace remora::volume::detail
