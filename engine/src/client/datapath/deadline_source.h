#pragma once

#include "base/clock.h"

namespace remora::detail {

/// Returns the earliest deadline of the operations for which a caller waits. The driver calls it
/// again when the last returned deadline has passed. Borrows the callable for one call of the
/// driver, in the thread of that call.
class DeadlineSource {
 public:
  template <typename Ask>
  explicit DeadlineSource(const Ask& ask) noexcept
      : callable_{&ask}, ask_{[](const void* callable) noexcept {
          return (*static_cast<const Ask*>(callable))();
        }} {}
  [[nodiscard]] Deadline operator()() const noexcept { return ask_(callable_); }

 private:
  const void* callable_;
  Deadline (*ask_)(const void*) noexcept;
};

}  // namespace remora::detail
