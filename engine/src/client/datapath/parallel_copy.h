#pragma once

/// Copies in parallel: on the calling thread and on the engine's helpers, if the system gives
/// threads for them. A helper that copies waits for nothing but memory.

#include <cstddef>
#include <functional>
#include <memory>

#include "base/placement.h"

namespace remora::detail {

class HelperThreads;

/// The engine owns it. Thread-safe: concurrent calls share the helpers.
class ParallelCopy {
 public:
  /// Below this length one thread is faster: to start a task costs some microseconds, to wake a
  /// helper some tens. Measured by tests/bench/bench_shm_vs_memcpy.
  static constexpr std::size_t kThresholdBytes = std::size_t{512} << 10U;

  /// At most `threads` threads copy, the caller included; 1: only the caller. Helpers run on
  /// processors of `placement`; the caller is not moved.
  explicit ParallelCopy(std::size_t threads, const Placement& placement = {});
  ~ParallelCopy();
  ParallelCopy(const ParallelCopy&) = delete;
  ParallelCopy& operator=(const ParallelCopy&) = delete;

  [[nodiscard]] bool worth_it(std::size_t length_bytes) const noexcept {
    return helpers_ != nullptr && length_bytes >= kThresholdBytes;
  }
  /// As memcpy(3). Blocks until all bytes are copied.
  void copy(std::byte* to, const std::byte* from, std::size_t length_bytes) noexcept;
  /// Calls `one` for 0 … count - 1, in any order, on any of the threads. Blocks until all calls
  /// have returned. Allocates nothing if `one` holds a std::ref to a callable.
  void for_each(std::size_t count, const std::function<void(std::size_t)>& one) noexcept;

 private:
  std::unique_ptr<HelperThreads> helpers_;
};

}  // namespace remora::detail
