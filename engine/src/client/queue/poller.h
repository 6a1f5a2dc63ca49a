#pragma once

/// Threads that move the operations of callback queues and call back.
///
/// A poller looks at the lanes of its queues for as long as something ends, and for `spin` after
/// that. Then it lies down: says so (EventNotifier), asks each lane with something in flight for
/// its next event, looks once more, and sleeps in epoll on these lanes' descriptors and on its own.
/// So a completion wakes it by the lane; one that another thread polled, an operation that is done
/// or the first of its queue, and a job, by the watcher.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <thread>
#include <vector>

#include <remora/engine/async.h>
#include <remora/metrics/registry.h>
#include <remora/mutex.h>
#include <remora/result.h>

#include "base/clock.h"
#include "base/placement.h"
#include "base/unique_fd.h"
#include "client/datapath/event_notifier.h"
#include "client/queue/callback_core.h"

namespace remora::detail {

class Poller {
 public:
  /// On a processor that `placement` allows. Errors: kSystem.
  static Result<std::unique_ptr<Poller>> start(std::chrono::nanoseconds spin,
                                               const Placement& placement);
  /// No queue is left. Also from the poller's own thread, which then ends by itself.
  ~Poller();
  Poller(const Poller&) = delete;
  Poller& operator=(const Poller&) = delete;

  /// Serves `core` from now on, and keeps it.
  void add(CallbackCore& core) noexcept;
  /// Waits until `core`, which is closing, is served to its end. False: it is not, by `until`.
  bool part_with(CallbackCore& core, Deadline until) noexcept;
  /// Has the poller run `job`. The caller keeps the engine meanwhile.
  void post(Resumable& job) noexcept;

  /// Queues that it serves.
  [[nodiscard]] std::size_t load() const noexcept {
    return state_->load.load(std::memory_order_relaxed);
  }
  [[nodiscard]] bool is_this_thread() const noexcept {
    return std::this_thread::get_id() == thread_.get_id();
  }
  [[nodiscard]] EventNotifier& watcher() noexcept { return state_->watcher; }
  /// The same, for a thread that may tell it when the poller has gone.
  [[nodiscard]] std::shared_ptr<EventNotifier> share_watcher() const noexcept {
    return {state_, &state_->watcher};
  }

 private:
  /// Shared with the thread, which may outlive the poller: the last owner of an engine may be a
  /// queue that was left to it.
  struct State {
    std::chrono::nanoseconds spin{0};
    UniqueFd epoll;
    EventNotifier watcher;
    std::atomic<bool> stop{false};
    std::atomic<CallbackCore*> joining{nullptr};  ///< chained by next_
    std::atomic<Resumable*> jobs{nullptr};        ///< the latest first
    std::atomic<std::size_t> load{0};
    CallbackCore* cores = nullptr;  ///< chained by next_; the thread's own
    Mutex mutex;                    ///< of CallbackCore::gone_ of each of them
    Condition parted;
  };
  explicit Poller(std::shared_ptr<State> state) noexcept : state_{std::move(state)} {}
  static void run(State& state) noexcept;
  static void welcome(State& state) noexcept;
  static bool run_jobs(State& state) noexcept;
  static bool serve_all(State& state) noexcept;
  static void dismiss(State& state, CallbackCore& core) noexcept;
  static void sleep(State& state) noexcept;

  std::shared_ptr<State> state_;
  std::thread thread_;
};

/// The pollers of one engine.
class Pollers {
 public:
  /// The one with the fewest queues; starts another while there are fewer than `most` and none is
  /// idle. Not thread-safe. Errors: kUnsupported (`most` is 0), kSystem, and those of the series of
  /// their time.
  Result<Poller*> pick(std::size_t most, std::chrono::nanoseconds spin, const Placement& placement,
                       metrics::Registry& registry);
  /// Whether this thread is. As pick().
  [[nodiscard]] bool is_one_of_them() const noexcept {
    return std::any_of(pollers_.begin(), pollers_.end(),
                       [](const auto& poller) { return poller->is_this_thread(); });
  }

 private:
  std::vector<std::unique_ptr<Poller>> pollers_;
};

}  // namespace remora::detail
