#pragma once

#include <cstddef>
#include <vector>

#include "base/page_buffer.h"
#include "transport/tcp/step_limits.h"
#include "transport/tcp/wire.h"

namespace remora::transport::tcp {

/// Buffers for the lanes that one thread serves. A lane has a buffer only during a step, and
/// between steps as long as bytes are in it: a request that is not complete, answers that have not
/// been sent. So an idle lane has none, and a thread needs a few, which stay in the processor's
/// cache, however many lanes it serves.
///
/// Used by that thread alone.
class LaneBuffers {
 public:
  /// The size of each: enough for the requests, and for the answers, of a lane with payload CRC.
  /// Only pages that were used are resident.
  static constexpr std::size_t kBytes =
      kMaxStepBytes + kMaxTransferBytes + (std::size_t{16} << 10U);
  /// The buffers that trim() keeps: those of one lane.
  static constexpr std::size_t kKept = 2;

  LaneBuffers();

  /// A buffer of kBytes, whose contents are any bytes. Allocates only if more buffers are in use
  /// than there were at any time since a trim(). Without memory the result is empty.
  [[nodiscard]] remora::detail::PageBuffer take() noexcept;
  /// The lane does not use the buffer any more; an empty one is ignored.
  void put_back(remora::detail::PageBuffer buffer) noexcept;

  /// Whether there are buffers for trim() to destroy.
  [[nodiscard]] bool has_spare() const noexcept { return free_.size() > kKept; }
  /// Destroys buffers that no lane uses, all but `kept` of them. For a thread that has nothing to
  /// serve, or fewer lanes than before.
  void trim(std::size_t kept = kKept) noexcept;

  /// The number of buffers that were allocated so far, and of those that no lane uses.
  [[nodiscard]] std::size_t made() const noexcept { return made_; }
  [[nodiscard]] std::size_t unused() const noexcept { return free_.size(); }

 private:
  /// The most buffers that are kept for later: 128 lanes in the middle of a transfer at once.
  static constexpr std::size_t kMaxFree = 256;

  std::vector<remora::detail::PageBuffer> free_;  ///< the one that was used last at its end
  std::size_t made_ = 0;
};

}  // namespace remora::transport::tcp
