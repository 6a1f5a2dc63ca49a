#pragma once

#include <utility>

#include <remora/result.h>

#include "descriptor.h"

namespace remora::metrics {

/// Ends the waits of all threads of an endpoint: see wait_for(). Thread-safe.
class StopSignal {
 public:
  /// Errors: kSystem.
  static Result<StopSignal> create();
  void raise() const noexcept;
  [[nodiscard]] int fd() const noexcept { return event_.fd(); }

 private:
  explicit StopSignal(Descriptor event) noexcept : event_{std::move(event)} {}
  Descriptor event_;
};

}  // namespace remora::metrics
