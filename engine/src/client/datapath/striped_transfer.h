#pragma once

/// A synchronous operation that uses all lanes of a session at once: a transfer in several parts,
/// or a flush of each lane.

#include <chrono>
#include <functional>
#include <memory>
#include <span>

#include "client/datapath/client_metrics.h"
#include "client/datapath/lane_driver.h"
#include "client/datapath/operation_record.h"
#include "transport/wire_extent.h"

namespace remora::detail {

/// Whether a checked operation must use all lanes, or is faster with them. An operation in pieces
/// or with a notification needs the order of one lane.
[[nodiscard]] bool uses_all_lanes(const OperationRecord& operation) noexcept;

/// The lanes of a session, and the extents of one of its grants.
struct StripedPath {
  std::span<const std::unique_ptr<LaneDriver>> lanes;
  std::span<const transport::WireExtent> extents;
  const ClientMetrics& metrics;
  std::chrono::nanoseconds spin;  ///< see EngineOptions::spin
  bool by_rate = false;  ///< each lane's share depends on the rate of its device; otherwise all
                         ///< shares are equal
  /// Returns whether a read that failed since its lane broke is repeated, while there is time;
  /// called after such a failure. Empty: reads are not repeated.
  std::function<bool()> repeats{};
};

/// Carries out a checked operation, which has a deadline. Sets the outcome of the whole operation,
/// and counts it once. Blocks. Any thread; the caller drives all lanes.
void run_striped(const StripedPath& path, OperationRecord& operation) noexcept;

}  // namespace remora::detail
