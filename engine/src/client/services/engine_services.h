#pragma once

/// The options, threads and memory of an engine, for its sessions, regions and queues.

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>

#include <remora/engine/control.h>
#include <remora/engine/engine.h>
#include <remora/metrics/registry.h>
#include <remora/mutex.h>
#include <remora/result.h>

#include "base/clock.h"
#include "base/event_loop.h"
#include "base/placement.h"
#include "client/datapath/parallel_copy.h"
#include "client/services/engine_memory.h"
#include "client/services/handler_gate.h"
#include "client/services/session_ticker.h"

namespace remora::detail {

class ControlCalls;
class JobThreads;
class Poller;
class Pollers;

/// The base of EngineCore, which opens sessions and regions. Each session has a reference to it,
/// and so to the whole engine. Starts its threads when they are first needed. Thread-safe.
class EngineServices : public std::enable_shared_from_this<EngineServices> {
 public:
  EngineServices(const EngineServices&) = delete;
  EngineServices& operator=(const EngineServices&) = delete;

  [[nodiscard]] const EngineOptions& options() const noexcept { return options_; }
  /// `given`, with the default deadline if it has none.
  [[nodiscard]] ControlOptions control_options(ControlOptions given) const;
  /// The processors of the engine's own threads: each thread calls bind_thread() first.
  [[nodiscard]] const Placement& placement() const noexcept { return placement_; }
  [[nodiscard]] metrics::Registry& registry() const noexcept { return *options_.registry; }
  [[nodiscard]] EngineMemory& memory() noexcept { return memory_; }
  [[nodiscard]] HandlerGate& handler_gate() noexcept { return handler_gate_; }
  /// The non-blocking control calls.
  [[nodiscard]] const std::shared_ptr<ControlCalls>& control_calls() const noexcept {
    return control_calls_;
  }
  [[nodiscard]] const std::shared_ptr<ParallelCopy>& parallel_copy() const noexcept {
    return parallel_copy_;
  }
  [[nodiscard]] SessionTicker& ticker() noexcept { return ticker_; }

  /// The control thread, started with the first session. Errors: kSystem.
  Result<EventLoop*> control_loop();
  /// For a thread that releases the engine, since the control thread may then be its last owner.
  /// Nothing if there is no control thread, and on a poller, for which the control thread would
  /// wait.
  [[nodiscard]] std::optional<EventLoop::Parting> parting() const noexcept;
  /// A poller for one more callback queue. Errors: see Pollers::pick().
  Result<Poller*> poller();
  /// Whether the calling thread is a poller.
  [[nodiscard]] bool on_poller() const noexcept;
  /// Threads that resume coroutines; the first call starts them. Errors: kOutOfMemory.
  Result<std::shared_ptr<JobThreads>> arena();

  /// How long a session that closes may wait until its goodbye is sent: 300 ms; 30 ms within 5 s
  /// after a goodbye that was not sent in time, as when a host has failed.
  [[nodiscard]] std::chrono::nanoseconds goodbye_time() const noexcept;
  void goodbye_not_sent() noexcept;

 protected:
  EngineServices(EngineOptions options, Placement placement);
  ~EngineServices();

 private:
  const EngineOptions options_;
  const Placement placement_;
  const std::shared_ptr<ParallelCopy> parallel_copy_;
  const std::shared_ptr<ControlCalls> control_calls_;
  SessionTicker ticker_;
  HandlerGate handler_gate_;
  std::atomic<Clock::rep> goodbye_not_sent_at_{0};
  mutable Mutex mutex_;
  std::unique_ptr<EventLoop> control_loop_ REMORA_GUARDED_BY(mutex_);
  const std::unique_ptr<Pollers> pollers_ REMORA_PT_GUARDED_BY(mutex_);
  std::shared_ptr<JobThreads> arena_ REMORA_GUARDED_BY(mutex_);
  EngineMemory memory_;  ///< destroyed before the control loop, which it uses
};

}  // namespace remora::detail
