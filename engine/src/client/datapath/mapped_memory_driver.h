#pragma once

/// Carries out operations on remote memory that is mapped into this process: an operation is a copy
/// or a CPU atomic in the thread that submits it. The engine's helper threads help with large
/// transfers and with batches of large operations. The threads share no state, so there is no lock.
/// A thread that tells another thread of a completed operation synchronises by that, as with any
/// memory.
///
/// An operation that finds the session interrupted, and has had no effect, waits within its
/// deadline until the session is resumed or ends, as over the other transports. A synchronous
/// caller waits in its call. The driver keeps operations of a queue, under a lock that no other
/// path takes, and the queue's owner carries them out in its next wait().

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include <remora/mutex.h>

#include "client/datapath/client_metrics.h"
#include "client/datapath/lane_driver.h"
#include "client/datapath/operation_list.h"
#include "client/datapath/parallel_copy.h"
#include "transport/client_endpoint.h"
#include "transport/notice.h"

namespace remora::detail {

/// The session owns it. Thread-safe.
class MappedMemoryDriver final : public LaneDriver {
 public:
  /// Notifies the serving application of a write; blocks until the server has accepted the
  /// notification.
  using Notifier = std::function<Status(const transport::Notice&, Deadline)>;

  /// Called for a synchronous operation that finds its session interrupted. Waits until the session
  /// is resumed or ends, at most until the operation's deadline. An outcome that is ok: the
  /// operation continues. Another outcome: the operation ends with it. Nothing: this thread may not
  /// wait, or the session is not interrupted.
  using SessionAwaiter = std::function<std::optional<Outcome>(const OperationRecord&)>;
  /// As SessionAwaiter, for an operation that the driver keeps; never waits. Nothing: the session
  /// is still interrupted.
  using SessionLook = std::function<std::optional<Outcome>(const OperationRecord&)>;

  MappedMemoryDriver(transport::DirectPath path, std::shared_ptr<ParallelCopy> copier,
                     ClientMetrics metrics, BrokenHandler on_broken, Notifier notifier,
                     SessionAwaiter await_session, SessionLook look_at_session);
  ~MappedMemoryDriver() override;

  /// On return the operations have ended, and the server has accepted their notifications;
  /// operations that wait for an interrupted session are kept. Long copies check the deadline and
  /// the server every few MiB.
  void submit(OperationList operations) noexcept override;
  void run(OperationRecord& operation) noexcept override;
  bool try_run(OperationRecord& operation) noexcept override;
  [[nodiscard]] bool maps_memory() const noexcept override { return true; }
  [[nodiscard]] bool may_copy() noexcept override { return usable(); }
  void wait(CompletionSink& sink, std::size_t at_least,
            DeadlineSource earliest_deadline) noexcept override;
  void progress_and_arm(CompletionSink& sink, DeadlineSource earliest_deadline) noexcept override;
  bool cancel(OperationRecord& operation) noexcept override;
  [[nodiscard]] bool carries(const RevocableGrant& grant) noexcept override;
  void fail(Reason reason) noexcept override;
  void interrupt(Reason reason) noexcept override { stop(reason); }
  bool replace(std::unique_ptr<transport::Lane> /*lane*/) noexcept override { return !ended_; }
  /// The same server serves the same memory, so the mapping stays.
  void go_on() noexcept override;
  [[nodiscard]] std::uint32_t request_bytes_max() const noexcept override;
  /// The processor prefetches from one block to the next. For shorter operations the sort costs
  /// more than it saves; with more operations, their records, which are visited out of order, do
  /// not stay in the cache.
  [[nodiscard]] NeighbourGain neighbour_gain() const noexcept override {
    return {.max_operations = 4096, .length_bytes_least = 1024};
  }

 private:
  /// The operations at the beginning of a submission that copy_short_blocks() has carried out.
  struct ShortBlocks {
    OperationRecord* rest;  ///< the first operation that it has not; null: none
    std::uint64_t count = 0;
    std::uint64_t sum_bytes = 0;
  };
  [[nodiscard]] ShortBlocks copy_short_blocks(OperationRecord& first) noexcept;
  void run_all(OperationRecord* first, Clock::time_point now) noexcept;
  void run_batch(std::span<OperationRecord* const> batch, std::uint64_t total_bytes) noexcept;
  void carry_out(OperationRecord& operation) noexcept;
  [[gnu::noinline, gnu::cold]] void end_unserved(OperationRecord& operation) noexcept;
  void move_bytes(transport::Opcode opcode, std::byte* local, std::byte* remote,
                  std::size_t length_bytes) noexcept;
  void copy_in_steps(OperationRecord& operation) noexcept;
  void carry_out_later(OperationRecord& operation) noexcept;
  void tell(OperationRecord& operation) noexcept;
  void stop(Reason reason) noexcept;
  [[nodiscard]] bool usable() noexcept;

  // In mapped_memory_driver_waiting.cc.
  [[nodiscard]] static bool may_wait(const OperationRecord& operation) noexcept;
  void submit_interrupted(OperationList operations) noexcept;
  [[nodiscard]] bool settle(OperationRecord& operation) noexcept;
  std::uint64_t settle_those_of(CompletionSink& sink) noexcept;
  void time_out_overdue() noexcept;
  void end(OperationRecord& operation) noexcept;
  void end_wait_of_one() noexcept;
  void keep(OperationList& operations) noexcept;
  void wake_owners() noexcept;

  transport::DirectPath path_;
  std::shared_ptr<ParallelCopy> copier_;
  ClientMetrics metrics_;
  BrokenHandler on_broken_;
  Notifier notifier_;
  SessionAwaiter await_session_;
  SessionLook look_at_session_;
  std::atomic<Reason> broken_reason_{Reason::kNone};
  std::atomic<bool> ended_{false};       ///< for good
  std::atomic<std::uint64_t> stops_{0};  ///< number of times that broken_ was set
  /// Operations in `waiting_`, and those that their owner has taken out to check.
  std::atomic<std::size_t> waiting_count_{0};
  Mutex waiting_mutex_;
  OperationList waiting_ REMORA_GUARDED_BY(waiting_mutex_);
  std::uint64_t changes_ REMORA_GUARDED_BY(waiting_mutex_) = 0;  ///< of the session
  Condition changed_;
  alignas(64) std::atomic<bool> order_{false};
};

}  // namespace remora::detail
