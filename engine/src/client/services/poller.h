#pragma once

/// Threads that move the operations of callback queues and run their callbacks.
///
/// A poller polls the lanes of its queues while operations end, and for `spin` after that. Then it
/// sleeps: it calls EventNotifier::announce_sleep(), arms each lane with operations in flight,
/// polls once more, and sleeps in epoll on the descriptors of these lanes and of its EventNotifier.
/// A lane wakes it for a completion. The EventNotifier wakes it for a completion that another
/// thread polled, an operation that ended on submission, a new queue, the first operation of a
/// queue, and a job.

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>

#include <remora/engine/async.h>
#include <remora/mutex.h>
#include <remora/result.h>

#include "base/clock.h"
#include "base/placement.h"
#include "base/service_state.h"
#include "base/service_thread.h"
#include "client/datapath/event_notifier.h"
#include "client/services/polled_queue.h"
#include "client/services/posted_resumables.h"

namespace remora::detail {

class ThreadClocks;

/// Owns the thread. Pollers owns it. Thread-safe, except the destructor.
class Poller {
 public:
  /// Starts the thread, on a processor that `placement` allows. Errors: kSystem.
  static Result<std::unique_ptr<Poller>> start(std::chrono::nanoseconds spin,
                                               const Placement& placement);
  /// Only when no queue is left. The poller's own thread may call it, and then ends by itself.
  ~Poller() = default;
  Poller(const Poller&) = delete;
  Poller& operator=(const Poller&) = delete;

  /// Serves `queue` from now on, and has a reference to it.
  void add(PolledQueue& queue) noexcept;
  /// Waits until the poller has left `queue`, which is closing. False: not before `until`.
  bool part_with(PolledQueue& queue, Deadline until) noexcept;
  /// Lets the poller run `job`. The caller keeps the engine until then.
  void post(Resumable& job) noexcept;

  /// Number of queues that the poller serves.
  [[nodiscard]] std::size_t load() const noexcept {
    return state_->load.load(std::memory_order_relaxed);
  }
  /// CPU time of all pollers of the process. Never destroyed: pollers and registries may live
  /// longer than static objects.
  static ThreadClocks& cpu_clocks();
  [[nodiscard]] bool is_this_thread() const noexcept { return state_->service.is_this_thread(); }
  [[nodiscard]] EventNotifier& notifier() noexcept { return state_->notifier; }
  /// The notifier, for a thread that may use it after the poller was destroyed.
  [[nodiscard]] std::shared_ptr<EventNotifier> share_notifier() const noexcept {
    return {state_, &state_->notifier};
  }

 private:
  /// Shared with the thread, which may live longer than the poller: the poller may destroy a closed
  /// queue, and with it the last owner of the engine.
  struct State {
    std::chrono::nanoseconds spin{0};
    ServiceState service;
    EventNotifier notifier;                      ///< of the event that wakes the service thread
    std::atomic<PolledQueue*> joining{nullptr};  ///< chained by next_
    PostedResumables jobs;
    std::atomic<std::size_t> load{0};
    PolledQueue* queues = nullptr;  ///< chained by next_; used by the thread only
    Mutex mutex;                    ///< guards gone_ of each queue
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

}  // namespace remora::detail
