#pragma once

/// Work in independent steps, shared by several threads: populating and registering a large pool.

#include <cstddef>
#include <functional>
#include <optional>
#include <stop_token>

#include <remora/result.h>

namespace remora::detail {

/// How run_steps() runs the steps.
struct StepOptions {
  /// The caller's own thread counts. 0 is 1. Threads that are not to be had are done without.
  std::size_t threads_max = 1;
  std::stop_token stop{};
  /// In the caller's thread before each step of its own, and after the last step of all: how many
  /// steps are done.
  std::function<void(std::size_t done)> on_step{};
  /// In each other thread, before its first step.
  std::function<void()> on_thread{};
};

/// What came of it.
struct StepsDone {
  std::size_t done = 0;         ///< steps that succeeded
  std::optional<Error> failed;  ///< of the first step that failed: no other was begun after it
  bool stopped = false;         ///< StepOptions::stop came before the last step was begun
};

/// Calls `step` for 0 … `count` - 1, each once, in this order where one thread runs them. Returns
/// when no thread runs a step any more. `step` and `on_thread` do not throw.
StepsDone run_steps(std::size_t count, const std::function<Status(std::size_t index)>& step,
                    const StepOptions& options);

/// Processors that the calling thread may run on; at least 1.
[[nodiscard]] std::size_t usable_processors() noexcept;

}  // namespace remora::detail
