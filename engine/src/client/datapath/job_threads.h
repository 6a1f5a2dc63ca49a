#pragma once

/// The engine's own threads that run coroutines.

#include <cstddef>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include <remora/engine/async.h>
#include <remora/mutex.h>
#include <remora/result.h>

#include "base/placement.h"

namespace remora::detail {

/// The threads of Resume::on_arena(), which resume coroutines. The engine owns it. Thread-safe.
class JobThreads {
 public:
  /// Starts `threads` threads, or as many as the system allows, at least one. Errors: kSystem with
  /// Reason::kNoThread, kOutOfMemory.
  static Result<std::shared_ptr<JobThreads>> start(std::size_t threads, const Placement& placement);
  /// Only when no job is left. One of the threads may call it; that thread then ends by itself.
  ~JobThreads();
  JobThreads(const JobThreads&) = delete;
  JobThreads& operator=(const JobThreads&) = delete;

  /// Runs `job` on one of the threads. Neither allocates nor blocks for long.
  void post(Resumable& job) noexcept;

 private:
  struct State {
    Mutex mutex;
    Condition more;
    Resumable* first REMORA_GUARDED_BY(mutex) = nullptr;
    Resumable* last REMORA_GUARDED_BY(mutex) = nullptr;
    bool stop REMORA_GUARDED_BY(mutex) = false;
  };
  explicit JobThreads(std::shared_ptr<State> state) noexcept : state_{std::move(state)} {}
  static void run(State& state) noexcept;

  std::shared_ptr<State> state_;  ///< shared with the threads, which may live longer
  std::vector<std::thread> threads_;
};

}  // namespace remora::detail
