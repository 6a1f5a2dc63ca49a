#pragma once

/// Threads of the engine's own that help its callers with loops.
///
/// oneTBB divides the work among the threads that are in its arena, and never starts a thread here:
/// where the system refuses a thread, a worker of oneTBB ends the process, and tasks that were
/// enqueued never run. So all places of the arena are reserved for the helpers and the callers.

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

/// Helpers for loops whose steps are long. Thread-safe: calls from several threads share them.
class HelperThreads {
 public:
  /// `helpers` threads at most, on processors of `placement`; started by the first call.
  HelperThreads(std::size_t helpers, const Placement& placement);
  /// No call is under way.
  ~HelperThreads();
  HelperThreads(const HelperThreads&) = delete;
  HelperThreads& operator=(const HelperThreads&) = delete;

  /// Calls `one` for 0 … count - 1, in any order: by the caller, and by helpers as far as there are
  /// any. Blocks until done.
  void for_each(std::size_t count, const std::function<void(std::size_t)>& one) noexcept;

 private:
  /// So many callers share the helpers; a further caller works without them.
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
  /// After the system has refused a thread: when the next one may be started.
  Deadline start_from_ REMORA_GUARDED_BY(mutex_){};
  std::vector<std::thread> helpers_ REMORA_GUARDED_BY(mutex_);
};

}  // namespace remora::detail
