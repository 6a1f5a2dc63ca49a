#pragma once

/// Requests that wait for memory which is being zeroed: the worker serves other requests meanwhile.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace remora::detail {

/// Used only by the worker, except empty().
class AllocationQueue {
 public:
  using Job = std::function<void()>;
  /// Whether an allocation of `size_bytes` must wait until more memory has been zeroed.
  using MustWait = std::function<bool(std::uint64_t size_bytes)>;

  explicit AllocationQueue(MustWait must_wait) : must_wait_{std::move(must_wait)} {}

  [[nodiscard]] bool must_wait(std::uint64_t size_bytes) const { return must_wait_(size_bytes); }
  /// run_ready() calls `job` once: when the bytes are available, or when `deadline` has passed.
  void join(std::uint64_t size_bytes, Deadline deadline, Job job);
  /// Calls the jobs that need not wait any longer, in the order in which they joined.
  void run_ready();
  /// Drops all jobs without calling them.
  void clear() noexcept;
  /// Any thread.
  [[nodiscard]] bool empty() const noexcept { return count_.load() == 0; }

 private:
  struct Waiting {
    std::uint64_t size_bytes;
    Deadline deadline;
    Job job;
  };
  MustWait must_wait_;
  std::vector<Waiting> waiting_;       ///< used by the worker alone
  std::atomic<std::size_t> count_{0};  ///< of waiting_
};

}  // namespace remora::detail
