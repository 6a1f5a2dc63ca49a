#pragma once

/// Threads that move the operations of callback queues and run their callbacks.
///
/// A poller looks at the lanes of its queues as long as operations end, and for `spin` after that.
/// Then it sleeps: it calls EventNotifier::announce_sleep(), arms each lane with operations in
/// flight, looks once more, and sleeps in epoll on the descriptors of these lanes and of its
/// EventNotifier. So the lane wakes it for a completion. The EventNotifier wakes it for a
/// completion that another thread polled, an operation that is done on submission, a new queue, its
/// first operation, and a job.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <vector>

#include <remora/engine/async.h>
#include <remora/metrics/registry.h>
#include <remora/mutex.h>
#include <remora/result.h>

#include "base/clock.h"
#include "base/placement.h"
#include "base/service_thread.h"
#include "client/datapath/event_notifier.h"
#include "client/services/polled_queue.h"
#include "client/services/posted_resumables.h"

namespace remora::detail {

class Poller {
 public:
  /// Starts the thread, on a processor that `placement` allows. Errors: kSystem.
  static Result<std::unique_ptr<Poller>> start(std::chrono::nanoseconds spin,
                                               const Placement& placement);
  /// Only when no queue is left. Also in the poller's own thread, which then ends by itself.
  ~Poller() = default;
  Poller(const Poller&) = delete;
  Poller& operator=(const Poller&) = delete;

  /// Serves `queue` from now on, and keeps it alive.
  void add(PolledQueue& queue) noexcept;
  /// Waits until the poller has served `queue`, which is closing, to its end. False: not by
  /// `until`.
  bool part_with(PolledQueue& queue, Deadline until) noexcept;
  /// Has the poller run `job`. The caller keeps the engine alive until then.
  void post(Resumable& job) noexcept;

  /// Queues that it serves.
  [[nodiscard]] std::size_t load() const noexcept {
    return state_->load.load(std::memory_order_relaxed);
  }
  [[nodiscard]] bool is_this_thread() const noexcept { return state_->service.is_this_thread(); }
  [[nodiscard]] EventNotifier& notifier() noexcept { return state_->notifier; }
  /// The same, for a thread that may use it after the poller has gone.
  [[nodiscard]] std::shared_ptr<EventNotifier> share_notifier() const noexcept {
    return {state_, &state_->notifier};
  }

 private:
  /// Shared with the thread, which may outlive the poller: the poller may destroy a closed queue,
  /// and with it the last owner of the engine.
  struct State {
    std::chrono::nanoseconds spin{0};
    ServiceState service;
    EventNotifier notifier;                      ///< of the event that wakes the service thread
    std::atomic<PolledQueue*> joining{nullptr};  ///< chained by next_
    PostedResumables jobs;
    std::atomic<std::size_t> load{0};
    PolledQueue* queues = nullptr;  ///< chained by next_; used by the thread only
    Mutex mutex;                    ///< for gone() of each of them
    Condition parted;
  };
  explicit Poller(std::shared_ptr<State> state) noexcept : state_{std::move(state)} {}
  static void run(State& state) noexcept;
  static void take_joining(State& state) noexcept;
  static bool serve_all(State& state) noexcept;
  static void remove_queue(State& state, PolledQueue& queue) noexcept;
  static void sleep(State& state) noexcept;

  std::shared_ptr<State> state_;
  ServiceThread thread_;
};

/// The pollers of one engine. Not thread-safe.
class Pollers {
 public:
  /// Returns the poller with the fewest queues. Starts another one while there are fewer than
  /// `max_count` and none is idle. Errors: kUnsupported (`max_count` is 0),
  /// kSystem, and the errors of the metric of their CPU time.
  Result<Poller*> pick(std::size_t max_count, std::chrono::nanoseconds spin,
                       const Placement& placement, metrics::Registry& registry);
  /// Whether this thread is one of the pollers.
  [[nodiscard]] bool is_one_of_them() const noexcept {
    return std::any_of(pollers_.begin(), pollers_.end(),
                       [](const auto& poller) { return poller->is_this_thread(); });
  }

 private:
  std::vector<std::unique_ptr<Poller>> pollers_;
};

}  // namespace remora::detail
