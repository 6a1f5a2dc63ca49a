#pragma once

/// Opens the regions of a volume.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <remora/engine/engine.h>
#include <remora/result.h>
#include <remora/volume/cluster.h>
#include <remora/volume/volume_options.h>

#include "volume_core.h"

namespace remora::volume::detail {

/// Opens one volume once.
class VolumeOpener {
 public:
  /// All are borrowed.
  VolumeOpener(const Engine& engine, const VolumeLayout& layout, const VolumeOptions& options)
      : engine_{engine}, layout_{layout}, options_{options} {}

  /// Errors: those of Volume::open().
  Result<std::shared_ptr<VolumeCore>> open();

 private:
  /// A server that answers, and where.
  struct Reached {
    std::string address{};
    std::uint64_t memory_id = 0;
  };
  [[nodiscard]] Status check() const;
  Result<Region> open_group(const GroupRecord& group);
  Result<Region> open_member(const Member& member);
  const Result<Reached>& reach(const Member& member);
  [[nodiscard]] std::string uri(const std::string& address, const std::string& region) const;

  const Engine& engine_;
  const VolumeLayout& layout_;
  const VolumeOptions& options_;
  /// By name and memory id; each is tried once.
  std::map<std::pair<std::string, std::uint64_t>, Result<Reached>> servers_;
};

}  // namespace remora::volume::detail
