#pragma once

/// The engine's own threads that help its callers with loops.
///
/// oneTBB divides the work among the threads in its arena, and must never start a thread here: if
/// the system refuses the thread, a worker of oneTBB ends the process, and enqueued tasks never
/// run. So all places of the arena are reserved for the helpers and the callers.

#include <array>
#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include <remora/mutex.h>

#include "base/clock.h"
#include "base/placement.h"

namespace remora::detail {

/// Helpers for loops with long steps. ParallelCopy owns it. Thread-safe: concurrent calls share the
/// helpers.
class HelperThreads {
 public:
  /// At most `helpers` threads, on processors of `placement`; the first call starts them.
  HelperThreads(std::size_t helpers, const Placement& placement);
  /// Only while no call runs.
  ~HelperThreads();
  HelperThreads(const HelperThreads&) = delete;
  HelperThreads& operator=(const HelperThreads&) = delete;

  /// Calls `one` for 0 … count - 1, in any order, on the calling thread and on helpers. Blocks
  /// until all calls have returned.
  void for_each(std::size_t count, const std::function<void(std::size_t)>& one) noexcept;

 private:
  /// Number of callers that share the helpers; another caller works without helpers.
  static constexpr std::size_t kMaxCallers = 16;
  struct Call;
  class Presence;
  struct Tasks;

  /// False: the caller works without helpers.
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
  /// The time from which a thread may be started again after the system has refused one.
  Deadline start_from_ REMORA_GUARDED_BY(mutex_){};
  std::vector<std::thread> helpers_ REMORA_GUARDED_BY(mutex_);
};

}  // namespace remora::detail
