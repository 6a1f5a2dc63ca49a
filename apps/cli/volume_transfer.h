#pragma once

/// `remora put` and `remora get` of a volume.

#include "cli/command.h"
#include "cli/transfer.h"

namespace remora::apps {

/// Reads and writes in pieces of kVolumePieceBytes, kVolumeDepth in flight, so that all servers are
/// busy. --resume, --verify, --streams and --dense are of regions only.
inline constexpr std::size_t kVolumePieceBytes = std::size_t{1} << 20U;
inline constexpr std::size_t kVolumeDepth = 16;

Outcome put_volume(const Globals& globals, const TransferOptions& options);
Outcome get_volume(const Globals& globals, const TransferOptions& options);

}  // namespace remora::apps
