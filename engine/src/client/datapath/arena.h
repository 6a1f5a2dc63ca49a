#pragma once

/// Threads of the engine's own that help its callers.
///
/// oneTBB shares the work out, and is never asked for a thread: where the system refuses one, a
/// worker of oneTBB's ends the process, and what was enqueued never runs. So every place of its
/// arena is kept for threads that come by themselves: the helpers here, and the callers.

#include <array>
#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include <remora/engine/async.h>
#include <remora/mutex.h>
#include <remora/result.h>

#include "base/clock.h"
#include "base/placement.h"

namespace remora::detail {

/// Helpers for loops whose steps are long. Thread-safe: calls from several threads share them.
class Arena {
 public:
  /// `helpers` threads at most, on processors of `placement`; started by the first call.
  Arena(std::size_t helpers, const Placement& placement);
  /// No call is under way.
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// Calls `one` for 0 … count - 1, in any order: by the caller, and by helpers as far as there are
  /// any. Blocks until done.
  void for_each(std::size_t count, const std::function<void(std::size_t)>& one) noexcept;

 private:
  /// Callers that share the helpers; those beyond work alone.
  static constexpr std::size_t kMaxCallers = 16;
  struct Call;
  class Presence;
  struct Tasks;

  /// False: the caller is alone.
  bool enter(Call& call) noexcept;
  void leave(Call& call) noexcept;
  void start_helpers() noexcept REMORA_REQUIRES(mutex_);
  void help() noexcept;
  [[nodiscard]] Call* open_call() const noexcept REMORA_REQUIRES(mutex_);

  const std::size_t helpers_max_;
  const Placement placement_;
  const std::unique_ptr<Tasks> tasks_;
  Mutex mutex_;
  Condition called_;
  Condition left_;
  std::array<Call*, kMaxCallers> calls_ REMORA_GUARDED_BY(mutex_){};
  std::size_t callers_ REMORA_GUARDED_BY(mutex_) = 0;
  bool stop_ REMORA_GUARDED_BY(mutex_) = false;
  /// Where threads were refused: not again before.
  Deadline start_from_ REMORA_GUARDED_BY(mutex_){};
  std::vector<std::thread> helpers_ REMORA_GUARDED_BY(mutex_);
};

/// Threads on which coroutines go on. Thread-safe.
class JobThreads {
 public:
  /// `threads` of them, or as many as are to be had, but one at least. Errors: kSystem with
  /// Reason::kNoThread, kOutOfMemory.
  static Result<std::shared_ptr<JobThreads>> start(std::size_t threads, const Placement& placement);
  /// Nothing waits to be run. Also from one of the threads, which then ends by itself.
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

  std::shared_ptr<State> state_;  ///< the threads' too: the last one may outlive this object
  std::vector<std::thread> threads_;
};

}  // namespace remora::detail
