#include <remora/volume/maintenance.h>

#include "decided_commit.h"
#include "volume_builder.h"

namespace remora::volume {

Managed<std::uint64_t> renew_generation(const Cluster& cluster) {
  const auto before = get_one(cluster.store(), cluster.keys().generation(), cluster.limit());
  if (!before) return failure(before.error());
  const std::uint64_t made = random_number();
  const std::string key = cluster.keys().generation();
  const auto applied =
      commit_decided(cluster, {{{key, *before ? std::optional{(*before)->value} : std::nullopt}},
                               {{key, generation_json(made), kNoLease}}});
  if (!applied) return failure(applied.error());
  if (!*applied)
    return failure(Error{Code::kBusy, "generation of a cluster"}.with_subject(cluster.name()));
  return made;
}

}  // namespace remora::volume
