#pragma once

#include <optional>
#include <span>

#include <remora/mutex.h>
#include <remora/result.h>
#include <remora/verbs/device.h>

#include "base/clock.h"

namespace remora::transport::rdma {

/// Whether the server can serve new clients, as far as it knows. Thread-safe.
class ServingState {
 public:
  /// Records that a client could not be served. Only errors that mean that the server lacks
  /// something count.
  void note(const Error& why) REMORA_EXCLUDES(mutex_);
  /// Success, unless a client could not be served: then `devices` are probed again, at most once a
  /// second, until a probe succeeds. Between two probes the result of the last probe counts, not
  /// the errors of clients since then, which a client can cause. **Blocks** for milliseconds during
  /// a probe.
  [[nodiscard]] Status check(std::span<const verbs::Device> devices) REMORA_EXCLUDES(mutex_);

 private:
  remora::detail::Mutex mutex_;
  std::optional<Error> failure_ REMORA_GUARDED_BY(mutex_);
  std::optional<Status> probed_ REMORA_GUARDED_BY(mutex_);  ///< empty: not probed yet
  Clock::time_point probed_at_ REMORA_GUARDED_BY(mutex_){};
};

}  // namespace remora::transport::rdma
