#pragma once

/// How a mirror is claimed and used.

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include <remora/engine/types.h>
#include <remora/volume/volume_options.h>

#include "mirror_clock.h"
#include "mirror_metrics.h"

namespace remora::volume::detail {

struct MirrorOptions {
  /// Takes the claim of a writer that still renews it.
  bool steal = false;
  /// Only the claimed writer may read; it writes all members at once.
  bool exclusive = false;
  /// Claims the volume also if groups cannot be adopted.
  bool partial = false;
  /// For other clients' messages: at most 200 printable ASCII characters. Empty: "HOST-PID-RANDOM".
  std::string identity{};
  /// kAuto, kRdma or kTcp.
  TransportKind transport = TransportKind::kAuto;
  /// An operation on one member: a member that has not answered by then is removed.
  std::chrono::nanoseconds member_limit = std::chrono::seconds{3};
  /// How long an operation without a known outcome is waited for, before its member is removed.
  std::chrono::nanoseconds settle_limit = std::chrono::milliseconds{500};
  /// Repair of one group when it is claimed.
  std::chrono::nanoseconds repair_limit = std::chrono::minutes{10};
  /// The lease of the claim; at least 2 s.
  std::chrono::seconds lease = std::chrono::seconds{10};
  MirrorTimes times{};
  std::shared_ptr<const MirrorClock> clock = std::make_shared<const MirrorClock>();
  std::function<void(const VolumeEvent&)> on_event{};
  std::shared_ptr<MirrorMetrics> metrics = MirrorMetrics::none();
};

}  // namespace remora::volume::detail
