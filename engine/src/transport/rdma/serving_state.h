#pragma once

#include <optional>
#include <span>

#include <remora/mutex.h>
#include <remora/result.h>
#include <remora/verbs/device.h>

#include "base/clock.h"

namespace remora::transport::rdma {

/// Whether new clients can be served, as far as is known. Thread-safe.
class ServingState {
 public:
  /// A client could not be served. Only errors that say that the server lacks something count.
  void note(const Error& why) REMORA_EXCLUDES(mutex_);
  /// Success, unless a client could not be served: then `devices` are probed again, at most once a
  /// second, until that succeeds. Between two probes the last one counts, and not the errors of
  /// clients since then, which a client can cause by itself. **Blocks** for milliseconds then.
  [[nodiscard]] Status check(std::span<const verbs::Device> devices) REMORA_EXCLUDES(mutex_);

 private:
  remora::detail::Mutex mutex_;
  std::optional<Error> failure_ REMORA_GUARDED_BY(mutex_);
  std::optional<Status> probed_ REMORA_GUARDED_BY(mutex_);  ///< none: not yet
  Clock::time_point probed_at_ REMORA_GUARDED_BY(mutex_){};
};

}  // namespace remora::transport::rdma
