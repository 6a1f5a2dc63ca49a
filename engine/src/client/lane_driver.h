#pragma once

/// Drives one lane: turns operations into chains, chains into completions, and keeps deadlines.
///
/// All callers of a lane share its lock; a chain is posted under it with one doorbell. The caller
/// polls: whoever waits moves everybody's operations forward. One of the waiting callers sleeps on
/// the lane's event descriptor, the others on a condition that it signals.

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include <remora/result.h>

#include "client/client_metrics.h"
#include "client/operation.h"
#include "transport/transport.h"

namespace remora::detail {

class LaneDriver {
 public:
  struct Options {
    std::chrono::nanoseconds spin;
    std::size_t domain_index = 0;       ///< of the lane's memory domain
    bool needs_keys = false;            ///< local memory must be registered
    std::shared_ptr<SlotStore> bounce;  ///< for memory that is not; null when !needs_keys
  };
  /// Called once, without the lock, by the thread that noticed that the lane is broken.
  using BrokenHandler = std::function<void()>;

  LaneDriver(std::unique_ptr<transport::Lane> lane, Options options, ClientMetrics metrics,
             BrokenHandler on_broken);
  ~LaneDriver();
  LaneDriver(const LaneDriver&) = delete;
  LaneDriver& operator=(const LaneDriver&) = delete;

  /// Hands over checked operations, chained by `next`; they end in their sinks. One doorbell unless
  /// the send queue is short of room. Never blocks, never allocates.
  void submit(OperationRecord* first) noexcept;

  /// Blocks until `sink` holds `at_least`. `earliest_deadline` is asked again whenever the last
  /// answer has passed. `at_least` must not exceed what was submitted to the sink.
  void wait(CompletionSink& sink, std::size_t at_least,
            const std::function<Deadline()>& earliest_deadline) noexcept;

  /// Takes what `sink` holds.
  OperationRecord* take(CompletionSink& sink) noexcept;

  /// Ends the lane from outside (session lost, engine closing): everything on it completes.
  void fail(Reason reason) noexcept;
  [[nodiscard]] bool broken() const noexcept { return broken_.load(std::memory_order_acquire); }

  [[nodiscard]] std::size_t domain_index() const noexcept { return options_.domain_index; }
  [[nodiscard]] bool needs_keys() const noexcept { return options_.needs_keys; }

 private:
  /// A work request with the lane.
  struct Posted {
    OperationRecord* operation = nullptr;
    std::byte* user = nullptr;  ///< where a bounced read goes
    std::uint32_t length_bytes = 0;
    std::uint32_t bounce_slot = SlotStore::kNone;
  };

  /// What is looked up once for all that completes together.
  struct Visit {
    Clock::time_point now;
    metrics::Recorder recorder;
  };

  // All below with the lock held.
  void submit_locked(OperationRecord* first) noexcept;
  void progress() noexcept;
  void pump() noexcept;
  bool plan(OperationRecord& operation, std::size_t room) noexcept;
  bool plan_atomic(OperationRecord& operation) noexcept;
  bool use_local(OperationRecord& operation, transport::WorkRequest& request,
                 Posted& posted) noexcept;
  void post_chain() noexcept;
  void drop(Posted& posted, const Visit& visit) noexcept;
  bool poll_completions() noexcept;
  void retire_through(const transport::LaneCompletion& completion, const Visit& visit) noexcept;
  void retire(std::uint64_t sequence, CompletionStatus status, std::uint32_t vendor_error,
              const Visit& visit) noexcept;
  void finish(OperationRecord& operation, const Visit& visit) noexcept;
  [[nodiscard]] Visit visit() const noexcept { return {Clock::now(), metrics_.recorder()}; }
  void expire(Clock::time_point now) noexcept;
  void break_lane(Reason reason) noexcept;
  void fail_backlog(const Visit& visit) noexcept;
  [[nodiscard]] Outcome lost(const OperationRecord& operation,
                             Clock::time_point now) const noexcept;
  void sleep(std::unique_lock<std::mutex>& lock, Deadline until) noexcept;
  void tell_if_broken(std::unique_lock<std::mutex>& lock) noexcept;

  std::unique_ptr<transport::Lane> lane_;
  Options options_;
  ClientMetrics metrics_;
  BrokenHandler on_broken_;

  std::mutex mutex_;
  std::condition_variable others_;  // waiting callers but the one that sleeps on the descriptor
  bool sleeper_ = false;
  std::size_t waiters_ = 0;
  std::atomic<bool> broken_{false};
  bool broken_told_ = false;
  Reason broken_reason_ = Reason::kNone;

  std::vector<Posted> ring_;  // by sequence & mask_
  std::uint64_t mask_;
  std::uint64_t next_sequence_ = 0;
  std::uint64_t retired_sequence_ = 0;
  std::vector<transport::WorkRequest> chain_;
  std::size_t chain_length_ = 0;
  std::uint64_t chain_bytes_ = 0;
  OperationRecord* backlog_first_ = nullptr;
  OperationRecord* backlog_last_ = nullptr;
  std::span<const std::uint64_t> atomic_results_;
  bool synchronous_;  ///< the lane completes within post()
};

}  // namespace remora::detail
