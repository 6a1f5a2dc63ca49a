#pragma once

/// Requests that wait for memory which is being zeroed: the worker serves others meanwhile.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace remora::detail {

/// Used by the worker alone, but for empty().
class AllocationQueue {
 public:
  using Job = std::function<void()>;
  /// Whether so many bytes may be had only after more has been zeroed.
  using MustWait = std::function<bool(std::uint64_t size_bytes)>;

  explicit AllocationQueue(MustWait must_wait) : must_wait_{std::move(must_wait)} {}

  [[nodiscard]] bool must_wait(std::uint64_t size_bytes) const { return must_wait_(size_bytes); }
  /// `job` is called by look(), once: when the bytes may be had, or `deadline` is over.
  void join(std::uint64_t size_bytes, Deadline deadline, Job job);
  /// Those that need wait no longer go on, in the order in which they came.
  void look();
  /// Drops all, without a call.
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
  std::vector<Waiting> waiting_;
  std::atomic<std::size_t> count_{0};
};

}  // namespace remora::detail
