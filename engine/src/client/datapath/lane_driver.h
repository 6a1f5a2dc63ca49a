#pragma once

/// Moves operations over one data path of a session, whatever that is. Two kinds: QueuedLaneDriver,
/// for transports that take work requests and complete them later (rdma, tcp), and
/// MappedMemoryDriver, where the remote memory is mapped and an operation is done by the time it
/// was submitted (shm).

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include <remora/result.h>

#include "base/clock.h"
#include "client/datapath/client_metrics.h"
#include "client/datapath/operation.h"
#include "transport/lane.h"

namespace remora::detail {

class RegionGrant;

/// The earliest deadline of what a caller waits for; asked again whenever the last answer has
/// passed. Borrows what it asks.
class DeadlineSource {
 public:
  template <typename Ask>
  explicit DeadlineSource(const Ask& ask) noexcept
      : who_{&ask}, ask_{[](const void* who) noexcept {
          return (*static_cast<const Ask*>(who))();
        }} {}
  [[nodiscard]] Deadline operator()() const noexcept { return ask_(who_); }

 private:
  const void* who_;
  Deadline (*ask_)(const void*) noexcept;
};

/// How an operation ends that finds its session interrupted or ended.
[[nodiscard]] inline Outcome session_gone(Reason reason) noexcept {
  return Outcome::failure(reason == Reason::kNewMemory ? Code::kStaleRegion : Code::kConnectionLost,
                          reason);
}

/// Thread-safe, unless said otherwise.
class LaneDriver {
 public:
  /// Called once, without a lock, by the thread that noticed that the lane is broken.
  using BrokenHandler = std::function<void()>;
  /// Why an operation was refused, or is to be; kNone: not known.
  using RefusalHandler = std::function<Reason(const OperationRecord&)>;

  LaneDriver() = default;
  virtual ~LaneDriver() = default;
  LaneDriver(const LaneDriver&) = delete;
  LaneDriver& operator=(const LaneDriver&) = delete;

  /// Whether acquire_lease() may make a registration, which blocks while pages are pinned.
  enum class Lease : std::uint8_t { kOld, kNew };
  /// Finds a registration for the memory of a checked operation that is not whole, if it is worth
  /// that. By the operation's owner, once its deadline is known, before it is submitted: then it
  /// goes back when the operation ends, else the owner calls release_lease(). Ends by half of the
  /// time that the operation has, or soon after. True: that may have taken time.
  virtual bool acquire_lease(OperationRecord& operation, Lease which) noexcept {
    (void)operation, (void)which;
    return false;
  }
  virtual void release_lease(OperationRecord& operation) noexcept { (void)operation; }

  /// Hands over checked operations; they end in their sinks. Never allocates, never waits for the
  /// peer.
  virtual void submit(OperationList operations) noexcept = 0;

  /// Blocks until `sink` has `at_least` operations ready, which must not exceed what was submitted
  /// to it. Moves what is in flight also for 0. By the sink's owner.
  virtual void wait(CompletionSink& sink, std::size_t at_least,
                    DeadlineSource earliest_deadline) noexcept = 0;

  /// Submits one checked operation, which has no sink, and blocks until it has ended: one visit to
  /// the lane where it completes at once.
  virtual void run(OperationRecord& operation) noexcept = 0;
  /// As run(), for one that has a sink and a caller that must not wait for the session's return.
  /// False: it is kept until then, and ends in its sink during a wait() of the sink's owner. Only
  /// where event_fd() is -1.
  virtual bool try_run(OperationRecord& operation) noexcept {
    run(operation);
    return true;
  }

  /// As wait() for none, and asks event_fd() to tell of the next completion before it looks.
  virtual void progress_and_arm(CompletionSink& sink,
                                DeadlineSource earliest_deadline) noexcept = 0;
  /// Readable when a completion may be there, after progress_and_arm(). -1: never needed.
  [[nodiscard]] virtual int event_fd() const noexcept { return -1; }
  /// Takes `operation` back if it has not been posted: true, and it is in its sink as cancelled.
  virtual bool cancel(OperationRecord& operation) noexcept = 0;
  /// On return no thread is about to tell the watcher of a sink that is complete.
  virtual void settle_events() noexcept {}

  /// Whether something of the grant is with the lane, or may be. Moves what is there, and ends what
  /// waits for a lane to follow and is of a grant that was taken back. Never blocks.
  [[nodiscard]] virtual bool carries(const RegionGrant& region) noexcept {
    (void)region;
    return false;
  }

  /// Lets the lane begin to end: what is posted flushes. fail() follows. Waits for nothing.
  virtual void move_to_error() noexcept {}
  /// Ends the lane for good (session lost, engine closing): everything on it completes.
  virtual void fail(Reason reason) noexcept = 0;

  /// Breaks the lane from outside, and it may go on later: what is with it ends, but for whole
  /// reads; these, and what was not posted or comes meanwhile, wait within their deadlines.
  virtual void interrupt(Reason reason) noexcept { fail(reason); }
  /// Gives an interrupted lane what it goes on with: null where memory is mapped. False: that can
  /// do less than the one before, or the lane has ended for good.
  virtual bool replace(std::unique_ptr<transport::Lane> lane) noexcept {
    (void)lane;
    return false;
  }
  /// After replace(): the lane goes on, with what waits first.
  virtual void go_on() noexcept {}

  /// Before fail(): what an operation of a neighbouring lane did, if anything. The first is kept.
  void blame(LaneFault fault) noexcept {
    LaneFault none = LaneFault::kNone;
    fault_.compare_exchange_strong(none, fault, std::memory_order_relaxed);
  }
  [[nodiscard]] LaneFault fault() const noexcept { return fault_.load(std::memory_order_relaxed); }
  /// An operation has ended as the lane broke, or is about to: it is broken, or will be.
  [[nodiscard]] bool breaking() const noexcept {
    return breaking_.load(std::memory_order_acquire) || broken();
  }
  [[nodiscard]] bool broken() const noexcept { return broken_.load(std::memory_order_acquire); }
  /// Where local memory must be registered: the index of the lane's memory domain.
  [[nodiscard]] virtual std::size_t domain_index() const noexcept { return 0; }
  [[nodiscard]] virtual bool needs_keys() const noexcept { return false; }
  /// What one request may move.
  [[nodiscard]] virtual std::uint32_t request_bytes_max() const noexcept = 0;
  /// Which batches are faster where operations follow each other that are neighbours on both sides.
  struct NeighbourGain {
    std::size_t max_operations = 0;  ///< 0: none
    std::uint32_t length_bytes_least = 0;
  };
  [[nodiscard]] virtual NeighbourGain neighbour_gain() const noexcept { return {}; }
  /// Writes up to here need no key.
  [[nodiscard]] virtual std::uint32_t inline_bytes_max() const noexcept { return 0; }

 protected:
  std::atomic<bool> breaking_{false};
  std::atomic<bool> broken_{false};
  std::atomic<LaneFault> fault_{LaneFault::kNone};
};

}  // namespace remora::detail
