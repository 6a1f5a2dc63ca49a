#pragma once

/// Opens the regions of a volume.

#include <cstdint>
#include <memory>

#include <remora/engine/engine.h>
#include <remora/result.h>
#include <remora/volume/cluster.h>
#include <remora/volume/volume_options.h>

#include "member_finder.h"
#include "volume_core.h"

namespace remora::volume::detail {

/// Opens one volume once.
class VolumeOpener {
 public:
  /// All are borrowed.
  VolumeOpener(const Engine& engine, const VolumeLayout& layout, const VolumeOptions& options)
      : engine_{engine}, layout_{layout}, options_{options}, finder_{engine, options.transport} {}

  /// Errors: those of Volume::open().
  Result<std::shared_ptr<VolumeCore>> open();

 private:
  [[nodiscard]] Status check() const;
  Result<Region> open_group(const GroupRecord& group);
  Result<Region> open_member(const Member& member);

  const Engine& engine_;
  const VolumeLayout& layout_;
  const VolumeOptions& options_;
  MemberFinder finder_;
};

}  // namespace remora::volume::detail
