#pragma once

/// What an interrupted growth leaves: groups beyond the end of the volume.

#include <remora/volume/cluster.h>
#include <remora/volume/management.h>

namespace remora::volume::detail {

/// Removes the keys of `layout.extra_groups`, and takes them out of the layout: their regions are
/// then used by no group. Errors: kBusy (the volume's key has changed since); those of the store.
Managed<void> remove_extra_groups(const Cluster& cluster, VolumeLayout& layout);

}  // namespace remora::volume::detail
