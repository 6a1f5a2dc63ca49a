#pragma once

/// Keeps a claim alive.

#include <chrono>
#include <memory>
#include <thread>

#include <remora/mutex.h>
#include <remora/result.h>

#include "mirror_options.h"
#include "volume_claim.h"

namespace remora::volume::detail {

/// A thread (`remora-claim`) that renews a claim three times in its lease, and calls the handler of
/// events once if another client has claimed the volume. It asks no member: a member that does not
/// answer cannot cost the lease. Thread-safe but for start().
class ClaimKeeper {
 public:
  /// `options` is borrowed.
  ClaimKeeper(std::shared_ptr<VolumeClaim> claim, const MirrorOptions& options);
  ~ClaimKeeper() { stop(); }
  ClaimKeeper(const ClaimKeeper&) = delete;
  ClaimKeeper& operator=(const ClaimKeeper&) = delete;

  /// Once. Errors: kSystem (no thread).
  Status start();
  /// Waits for a renewal that is under way. The claim stays, as long as its lease.
  void stop();

 private:
  void run(std::chrono::nanoseconds renewed);
  /// Waits for the next period. False: stop() was called.
  bool wait();

  const std::shared_ptr<VolumeClaim> claim_;
  const MirrorOptions& options_;
  remora::detail::Mutex mutex_;
  remora::detail::Condition wake_;
  bool stopped_ REMORA_GUARDED_BY(mutex_) = false;
  remora::detail::Mutex joining_;
  std::thread thread_ REMORA_GUARDED_BY(joining_);
};

}  // namespace remora::volume::detail
