#pragma once

/// A synchronous operation over all lanes of a session at once: a transfer in as many parts, or a
/// flush of each lane.

#include <chrono>
#include <functional>
#include <memory>
#include <span>

#include "client/datapath/client_metrics.h"
#include "client/datapath/lane_driver.h"
#include "client/datapath/operation.h"
#include "transport/wire_extent.h"

namespace remora::detail {

/// Whether `operation`, which has passed its check, must use all lanes, or gains by it. An
/// operation in pieces or with a notification stays on one lane, whose order it needs.
[[nodiscard]] bool uses_all_lanes(const OperationRecord& operation) noexcept;

/// The lanes of a session, and the extents of one of its grants.
struct StripedPath {
  std::span<const std::unique_ptr<LaneDriver>> lanes;
  std::span<const transport::WireExtent> extents;
  const ClientMetrics& metrics;
  std::chrono::nanoseconds spin;  ///< see EngineOptions::spin
  bool by_rate = false;           ///< lanes get shares by the rate of their devices, else the same
  /// Whether a read that has lost its lane goes again, while there is time: asked where it failed
  /// so. Empty: it does not.
  std::function<bool()> repeats{};
};

/// Carries out an operation that has passed its check and has its deadline. Sets the outcome of the
/// whole operation, and counts it once. Blocks. Any thread; the caller drives all lanes.
void run_striped(const StripedPath& path, OperationRecord& operation) noexcept;

}  // namespace remora::detail
