#pragma once

/// A synchronous operation over all lanes of a session at once: a transfer in as many parts, or a
/// flush of each lane.

#include "client/datapath/operation.h"

namespace remora::detail {

class RegionGrant;

/// Whether `operation`, which has passed its check, must use all lanes, or gains by it. An
/// operation in pieces or with a notification stays on one lane, whose order it needs.
[[nodiscard]] bool uses_all_lanes(const OperationRecord& operation) noexcept;

/// Carries out an operation that has passed its check and has its deadline. Sets the outcome of the
/// whole operation, and counts it once. Blocks. Any thread; the caller drives all lanes.
void run_striped(const RegionGrant& region, OperationRecord& operation) noexcept;

}  // namespace remora::detail
