#pragma once

/// Copies the zones of a group to the member that is built.

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>

#include <remora/mutex.h>
#include <remora/result.h>

#include "claimed_volume.h"
#include "copy_pace.h"

namespace remora::volume::detail {

/// Several zones at once, each on a thread of its own (`remora-rebuild`): while one reads from the
/// primary, another writes to the new member. One copy; several copies may share a pace.
class ZoneCopier {
 public:
  /// All are borrowed. `told` gets the number of zones that are done, in their order, one call at a
  /// time, on any of the threads.
  ZoneCopier(ClaimedVolume& volume, std::uint32_t group, CopyPace& pace,
             std::chrono::nanoseconds step_limit, std::function<void(std::uint32_t)> told);

  /// Blocks until all zones are copied, or one has failed and the others have ended. With one
  /// thread it is the caller's, also if no other can be started. Errors: those of copy_zone();
  /// kCancelled (the pace says so).
  Status run(std::uint32_t threads);

 private:
  /// Takes zone after zone.
  void work();
  /// The next zone; empty: there is none, or the copy ends. Waits as the pace says.
  std::optional<std::uint32_t> next();
  void end_zone(const Status& copied);

  ClaimedVolume& volume_;
  const std::uint32_t group_;
  const std::chrono::nanoseconds step_limit_;
  const std::function<void(std::uint32_t)> told_;
  CopyPace& pace_;
  remora::detail::Mutex mutex_;
  std::uint32_t next_ REMORA_GUARDED_BY(mutex_) = 0;
  std::uint32_t done_ REMORA_GUARDED_BY(mutex_) = 0;
  Status failure_ REMORA_GUARDED_BY(mutex_);
};

}  // namespace remora::volume::detail
