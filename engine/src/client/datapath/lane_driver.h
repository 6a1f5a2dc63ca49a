#pragma once

/// Carries out operations over one data path of a session. QueuedLaneDriver is for transports that
/// take work requests and complete them later (rdma, tcp); MappedMemoryDriver is for remote memory
/// that is mapped, where submit() itself carries the operations out (shm).

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include <remora/mutex.h>
#include <remora/result.h>

#include "base/clock.h"
#include "client/datapath/client_metrics.h"
#include "client/datapath/deadline_source.h"
#include "client/datapath/operation_list.h"
#include "client/datapath/operation_record.h"
#include "client/datapath/uniform_run.h"
#include "transport/lane.h"
#include "transport/rails.h"

namespace remora::detail {

class RevocableGrant;

/// The outcome of an operation whose session is interrupted or has ended.
[[nodiscard]] inline Outcome session_gone(Reason reason) noexcept {
  return Outcome::failure(reason == Reason::kNewMemory ? Code::kStaleRegion : Code::kConnectionLost,
                          reason);
}

/// The session owns it. Thread-safe, unless a function says otherwise.
class LaneDriver {
 public:
  /// The thread that finds the lane broken calls it once, without a lock.
  using BrokenHandler = std::function<void()>;
  /// Returns the reason why the server refused, or must refuse, an operation; kNone: not known.
  using RefusalHandler = std::function<Reason(const OperationRecord&)>;

  LaneDriver() = default;
  virtual ~LaneDriver() = default;
  LaneDriver(const LaneDriver&) = delete;
  LaneDriver& operator=(const LaneDriver&) = delete;

  /// kNew: acquire_lease() may also make a registration, which blocks while pages are pinned.
  enum class Lease : std::uint8_t { kOld, kNew };
  /// Looks for a registration of the memory of a checked operation that is not whole, if the
  /// operation gains by it. The owner of the operation calls it before submit(), once the deadline
  /// is known. The driver releases the lease when the operation ends; if the operation is not
  /// submitted, the owner calls release_lease(). May take half of the operation's time. Returns
  /// true if it may have taken time.
  virtual bool acquire_lease(OperationRecord& operation, Lease which) noexcept {
    (void)operation, (void)which;
    return false;
  }
  virtual void release_lease(OperationRecord& operation) noexcept { (void)operation; }

  /// Takes checked operations; each of them ends in its sink. Never allocates. Waits for the server
  /// only if mapped memory has notifications to deliver.
  virtual void submit(OperationList operations) noexcept = 0;
  /// Posts the first operations of `run`, as many as the lane has room for, and returns their
  /// number. Each of them ends in its sink. 0: the lane has no room, another thread holds it, other
  /// operations wait for it, or it takes no requests. The other operations stay with the caller,
  /// which calls fill_like() for the first of them before it offers them again. Polls once. Never
  /// waits.
  [[nodiscard]] virtual std::size_t post_run(const UniformRun& run) noexcept {
    (void)run;
    return 0;
  }

  /// Blocks until `sink` has at least `at_least` operations ready; so many must have been submitted
  /// to it. With 0 it does not block, but also posts and polls. The owner of the sink calls it.
  virtual void wait(CompletionSink& sink, std::size_t at_least,
                    DeadlineSource earliest_deadline) noexcept = 0;

  /// Submits one checked operation, which has no sink, and blocks until it has ended. An operation
  /// that completes at once takes the lane only once.
  virtual void run(OperationRecord& operation) noexcept = 0;
  /// As run(), for an operation with a sink whose caller must not wait for an interrupted session.
  /// False: the driver keeps the operation until the session is resumed or ends; the operation then
  /// ends in its sink, while the sink's owner calls wait(). Only if event_fd() is -1.
  virtual bool try_run(OperationRecord& operation) noexcept {
    run(operation);
    return true;
  }

  /// Whether an operation is a copy or a CPU atomic in the thread that submits it. That thread
  /// needs a MappedAccess, unless it works for a queue that is registered with the grant.
  [[nodiscard]] virtual bool maps_memory() const noexcept { return false; }
  /// Whether memory is mapped and the server serves now: then the caller may carry out checked
  /// transfers by its own copies. Else the caller calls run() for each.
  [[nodiscard]] virtual bool may_copy() noexcept { return false; }

  /// As wait() with 0, after it has armed event_fd() for the next completion. If the lane is broken
  /// it does not block: its operations end later, and the sink's notifier is notified.
  virtual void progress_and_arm(CompletionSink& sink,
                                DeadlineSource earliest_deadline) noexcept = 0;
  /// After progress_and_arm(): readable when there may be a completion. -1: the caller never needs
  /// to sleep.
  [[nodiscard]] virtual int event_fd() const noexcept { return -1; }
  /// Cancels `operation` if none of its requests was posted. True: it is in its sink, as cancelled.
  virtual bool cancel(OperationRecord& operation) noexcept = 0;
  /// On return no thread will notify the EventNotifier of a sink whose operations have all ended.
  virtual void settle_events() noexcept {}

  /// Whether the lane may have operations of the grant. Also polls, and ends operations of revoked
  /// grants that wait for the next lane. Never blocks.
  [[nodiscard]] virtual bool carries(const RevocableGrant& grant) noexcept {
    (void)grant;
    return false;
  }

  /// Moves the lane to the error state, in which the posted requests flush. Does not wait for the
  /// flush.
  virtual void move_to_error() noexcept {}
  /// Ends a broken lane for callers that may not wait for the device, and ends unposted operations
  /// that are past their deadlines. Blocks.
  virtual void end_broken_lane() noexcept {}
  /// Ends the lane for good (the session has ended, or the engine closes): all operations on it
  /// end.
  virtual void fail(Reason reason) noexcept = 0;

  /// Breaks the lane; the driver may get another lane later. Posted operations end, except reads of
  /// one request. These reads, and operations that are unposted or are submitted meanwhile, wait
  /// for go_on() within their deadlines.
  virtual void interrupt(Reason reason) noexcept { fail(reason); }
  /// Gives an interrupted driver its next lane; null if memory is mapped. False: the new lane can
  /// do less than the lane before, or the driver has ended for good.
  virtual bool replace(std::unique_ptr<transport::Lane> lane) noexcept {
    (void)lane;
    return false;
  }
  /// After replace(): the driver works again, and first posts the operations that wait.
  virtual void go_on() noexcept {}

  /// Stops posting, and waits until all posted requests have completed, at most until `until`.
  /// Operations then wait for release_hold(), or for the lane that follows an interrupt(). False:
  /// the lane is broken, or some requests are still posted; the driver posts again.
  [[nodiscard]] virtual bool hold(Deadline until) noexcept {
    (void)until;
    return true;
  }
  virtual void release_hold() noexcept {}

  /// The server's device of the lane, as a number, for the choice of a lane; the same for all lanes
  /// of a session without rails. Any thread; replace() changes it.
  [[nodiscard]] std::uint32_t server_device() const noexcept {
    return server_device_.load(std::memory_order_relaxed);
  }
  /// The device to which the lane leads when all rails work.
  [[nodiscard]] std::uint32_t home_device() const noexcept {
    return home_device_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint32_t megabits_per_s() const noexcept {
    return megabits_per_s_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] int memory_node() const noexcept {
    return memory_node_.load(std::memory_order_relaxed);
  }
  /// The rail, for reports. Null: the session has no rails.
  [[nodiscard]] std::shared_ptr<const transport::LaneRail> rail() const {
    const MutexLock lock{rail_mutex_};
    return rail_;
  }

  /// Records the fault of an operation that broke the lane or, before fail(), of an operation on a
  /// neighbouring lane. Keeps the first fault.
  void blame(LaneFault fault) noexcept {
    LaneFault none = LaneFault::kNone;
    fault_.compare_exchange_strong(none, fault, std::memory_order_relaxed);
  }
  [[nodiscard]] LaneFault fault() const noexcept { return fault_.load(std::memory_order_relaxed); }
  /// The lane broke because the server's device did not acknowledge a request: the path, or the
  /// server, is down.
  [[nodiscard]] bool unanswered() const noexcept {
    return unanswered_.load(std::memory_order_relaxed);
  }
  /// The lane is broken or about to be: an operation may already have ended with that failure.
  [[nodiscard]] bool breaking() const noexcept {
    return breaking_.load(std::memory_order_acquire) || broken();
  }
  [[nodiscard]] bool broken() const noexcept { return broken_.load(std::memory_order_acquire); }
  /// The lane is broken, and its posted operations have not ended yet: a thread waits for the
  /// device, or is about to.
  [[nodiscard]] bool ending() const noexcept { return ending_.load(std::memory_order_acquire); }
  /// The index of the lane's memory domain, with which local memory must be registered.
  [[nodiscard]] virtual std::size_t domain_index() const noexcept { return 0; }
  [[nodiscard]] virtual bool needs_keys() const noexcept { return false; }
  /// Requests that the lane has in flight at most, by the limits of its device; 0: memory is
  /// mapped. Any thread.
  [[nodiscard]] virtual std::uint32_t depth() const noexcept { return 0; }
  /// Length of the largest transfer of one request.
  [[nodiscard]] virtual std::uint32_t request_bytes_max() const noexcept = 0;
  /// The batches that are faster when operations on neighbouring blocks follow each other.
  struct NeighbourGain {
    std::size_t max_operations = 0;  ///< 0: none
    std::uint32_t length_bytes_least = 0;
  };
  [[nodiscard]] virtual NeighbourGain neighbour_gain() const noexcept { return {}; }
  /// Writes of up to this many bytes need no key.
  [[nodiscard]] virtual std::uint32_t inline_bytes_max() const noexcept { return 0; }

 protected:
  void set_rail(std::shared_ptr<const transport::LaneRail> rail) {
    if (rail == nullptr) return;
    server_device_.store(transport::device_number(rail->server_device), std::memory_order_relaxed);
    const std::string& home = rail->home_device.empty() ? rail->server_device : rail->home_device;
    home_device_.store(transport::device_number(home), std::memory_order_relaxed);
    megabits_per_s_.store(rail->megabits_per_s, std::memory_order_relaxed);
    memory_node_.store(rail->memory_node, std::memory_order_relaxed);
    const MutexLock lock{rail_mutex_};
    rail_ = std::move(rail);
  }

  std::atomic<bool> breaking_{false};
  std::atomic<bool> broken_{false};
  std::atomic<bool> ending_{false};
  std::atomic<LaneFault> fault_{LaneFault::kNone};
  std::atomic<bool> unanswered_{false};

 private:
  std::atomic<std::uint32_t> server_device_{0};
  std::atomic<std::uint32_t> home_device_{0};
  std::atomic<std::uint32_t> megabits_per_s_{0};
  std::atomic<int> memory_node_{-1};
  mutable Mutex rail_mutex_;
  std::shared_ptr<const transport::LaneRail> rail_ REMORA_GUARDED_BY(rail_mutex_);
};

}  // namespace remora::detail
