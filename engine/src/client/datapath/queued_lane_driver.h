#pragma once

/// Drives a lane that takes work requests: posts chains of operations, polls their completions, and
/// enforces deadlines.
///
/// A thread that finds the lane free posts its operations at once. A thread that finds the lane
/// taken leaves its operations in the inbox, and the holder of the lane posts them together with
/// its own operations before it releases the lane: one chain, with one doorbell. Operations that
/// are neighbours of the operation before them, in the region and in local memory, are joined with
/// it into one request. Other whole transfers that follow each other are a run, which is posted,
/// retired and given back as a unit. The records of a uniform run, which post_run() takes, are
/// filled in when the run is cut.
///
/// The callers poll: a thread that waits also moves the operations of the other threads. One
/// waiting caller sleeps on the lane's event descriptor, the others on a condition that each
/// completion signals.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "base/fd_set.h"
#include "base/light_mutex.h"
#include "client/datapath/client_metrics.h"
#include "client/datapath/end_tally.h"
#include "client/datapath/lane_driver.h"
#include "client/datapath/lane_sleep.h"
#include "client/datapath/lane_waiters.h"
#include "client/datapath/operation_list.h"
#include "client/datapath/slot_store.h"

namespace remora::detail {

/// Posts operations on a lane that takes requests, and ends them. exception: one lock guards the
/// members, each operation touches most of them, and none may stand behind another pointer
/// (unit_engine_cost counts the instructions).
class QueuedLaneDriver final : public LaneDriver {
 public:
  struct Options {
    std::chrono::nanoseconds spin;
    std::size_t domain_index = 0;  ///< of the lane's memory domain
    bool needs_keys = false;       ///< local memory must be registered
    /// Null when !needs_keys.
    std::shared_ptr<SlotStore> bounce;      ///< slots for memory that is not registered
    std::shared_ptr<LocalMemory> zeroes{};  ///< the bytes that write_zeroes sends
    /// Registers the unregistered memory of transfers of at least `cache_from_bytes`; null: that
    /// memory is copied through bounce slots, too.
    std::shared_ptr<transport::RegistrationCache> cache{};
    std::uint64_t cache_from_bytes = 0;
    bool revivable = false;  ///< the driver gets another lane after a broken one: see interrupt()
    /// Returns the reason why the server refused an operation. Called without the lane's lock; may
    /// block. Empty: the reason is not known.
    RefusalHandler why_refused{};
    /// Returns why the grant of an operation was revoked, or kNone. Called with the lane's lock
    /// held: it must not wait, and locks no mutex with which a lane is taken. Empty: no grant is
    /// revoked.
    RefusalHandler revoked{};
    /// Makes another thread call end_broken_lane() soon. False: there is no such thread. Called
    /// without the lane's lock; does not block. Empty: in each call, the thread that finds the lane
    /// broken ends it.
    std::function<bool(QueuedLaneDriver&)> end_elsewhere{};
  };

  QueuedLaneDriver(std::unique_ptr<transport::Lane> lane, Options options, ClientMetrics metrics,
                   BrokenHandler on_broken);
  ~QueuedLaneDriver() override;

  bool acquire_lease(OperationRecord& operation, Lease which) noexcept override;
  void release_lease(OperationRecord& operation) noexcept override;
  /// Rings one doorbell, unless the send queue is nearly full.
  void submit(OperationList operations) noexcept override;
  [[nodiscard]] std::size_t post_run(const UniformRun& run) noexcept override;
  // clang does not check run() and wait(): only at run time is it known whether they hold the lane.
  void run(OperationRecord& operation) noexcept override REMORA_NO_THREAD_SAFETY_ANALYSIS;
  void wait(CompletionSink& sink, std::size_t at_least,
            DeadlineSource earliest_deadline) noexcept override REMORA_NO_THREAD_SAFETY_ANALYSIS;
  void progress_and_arm(CompletionSink& sink, DeadlineSource earliest_deadline) noexcept override;
  /// Stays the same when another thread ends the lane meanwhile, and when another lane follows.
  [[nodiscard]] int event_fd() const noexcept override {
    return events_ ? events_->get() : lane_->event_fd();
  }
  bool cancel(OperationRecord& operation) noexcept override;
  void settle_events() noexcept override;
  [[nodiscard]] bool carries(const RevocableGrant& grant) noexcept override;
  void move_to_error() noexcept override;
  void fail(Reason reason) noexcept override;
  void interrupt(Reason reason) noexcept override;
  void end_broken_lane() noexcept override;
  bool replace(std::unique_ptr<transport::Lane> lane) noexcept override;
  void go_on() noexcept override;
  [[nodiscard]] bool hold(Deadline until) noexcept override;
  void release_hold() noexcept override;

  [[nodiscard]] std::size_t domain_index() const noexcept override { return options_.domain_index; }
  [[nodiscard]] bool needs_keys() const noexcept override { return options_.needs_keys; }
  /// Neighbours are joined into one request.
  [[nodiscard]] NeighbourGain neighbour_gain() const noexcept override {
    return {.max_operations = kMaxQueueDepth};
  }
  [[nodiscard]] std::uint32_t depth() const noexcept override {
    return depth_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint32_t request_bytes_max() const noexcept override {
    return limits_.transfer_bytes_max;
  }
  [[nodiscard]] std::uint32_t inline_bytes_max() const noexcept override {
    return limits_.inline_bytes_max;
  }

 private:
  static constexpr std::uint64_t kNowhere = ~std::uint64_t{0};

  /// The entry of a posted request in the ring, at the request's sequence. A run has one entry, at
  /// the sequence of its first request.
  struct Posted {
    OperationRecord* operation = nullptr;
    /// Number of whole transfers from `operation` on, chained by `next`, each with its own request.
    /// 0: the entry is one request of another kind.
    std::uint32_t run_count = 0;
    bool joined = false;          ///< the request has several operations, chained by `next`; no run
    bool ends_chain = false;      ///< its last request is the last of its chain, which is signaled
    bool uniform = false;         ///< the run is a part of a UniformRun
    std::uint64_t run_bytes = 0;  ///< of the whole run
    std::byte* user = nullptr;    ///< destination of a bounced read
    std::uint32_t length_bytes = 0;
    std::uint32_t bounce_slot = SlotStore::kNone;  ///< Set only if the operation is not whole:

    [[nodiscard]] std::uint64_t request_count() const noexcept {
      return std::max<std::uint32_t>(run_count, 1);
    }
  };
  /// The requests that the driver posts with the next doorbell.
  struct Chain {
    std::vector<const transport::WorkRequest*> requests;
    /// By place in the chain: requests that the driver has made from a part of an operation, or
    /// from several operations.
    std::vector<transport::WorkRequest> pieces;
    std::size_t length = 0;
    std::uint64_t run = 0;            ///< sequence of the last entry of the chain
    OperationRecord* last = nullptr;  ///< the last operation of the chain if it is whole
    std::uint64_t end = kNowhere;     ///< remote address behind `last`
    bool any_split = false;
  };
  /// How the lane has broken, and its end.
  struct End {
    bool told = false;           ///< on_broken_ was called
    bool for_good = false;       ///< broken, and no other lane follows
    bool victims_ended = false;  ///< all operations that were on the lane when it broke have ended
    bool asked = false;          ///< another thread was asked to end the broken lane
    bool held = false;           ///< see hold(): nothing is posted, and the lane works
    bool atomics_moved = false;  ///< since go_on(), the lane leads to another device of the server
    Reason reason = Reason::kNone;
  };
  /// Whether a thread that releases a broken lane may wait until the lane has ended.
  enum class Release : std::uint8_t { kMayWait, kAtOnce };
  /// Takes the lane, unless `gives_up` is true or becomes true while another thread holds the lane.
  bool lock_unless(const std::atomic<bool>& gives_up) noexcept REMORA_TRY_ACQUIRE(true, mutex_);
  /// Takes the lane, unless its holder may be waiting until the lane has ended.
  bool lock_unless_ending() noexcept REMORA_TRY_ACQUIRE(true, mutex_) {
    return lock_unless(ending_);
  }
  /// Leaves operations for the holder of the lane. True: the lane is free, and this thread has
  /// taken it.
  bool put_in_inbox(OperationList& operations) noexcept REMORA_TRY_ACQUIRE(true, mutex_);
  /// `taken`: this thread holds the lane. clang cannot follow that.
  void run_in_line(OperationRecord& operation,
                   bool taken) noexcept REMORA_NO_THREAD_SAFETY_ANALYSIS;
  /// Releases the lane. If operations have come into the inbox meanwhile, this thread posts them,
  /// or the next holder.
  [[gnu::always_inline]] void release_lane(Release release = Release::kMayWait) noexcept
      REMORA_RELEASE(mutex_) {
    if (notifier_ != nullptr || broken()) [[unlikely]]
      release_and_tell(release);
    else
      mutex_.unlock();
    if (inbox_filled()) [[unlikely]]
      post_inbox_and_release(release);
  }
  void release_and_tell(Release release) noexcept REMORA_RELEASE(mutex_);
  /// The operations of a request that the server refused, kept until the reason is known. The
  /// thread that releases the lane ends them after that.
  struct Refused {
    OperationRecord* first = nullptr;
    bool joined = false;  ///< with the operations chained by `next`
  };
  void end_refused(const Refused& refused) noexcept REMORA_EXCLUDES(mutex_);
  void post_inbox_and_release(Release release) noexcept REMORA_EXCLUDES(mutex_);
  /// Whether the inbox has operations. The thread that left them relies on this holder to post
  /// them.
  [[nodiscard]] bool inbox_filled() noexcept {
    OperationRecord* none = nullptr;
    return !inbox_.compare_exchange_strong(none, nullptr, std::memory_order_acq_rel);
  }

  /// The functions below need the lock.
  void take_inbox() noexcept REMORA_REQUIRES(mutex_);
  void add_to_backlog(OperationList& operations) noexcept REMORA_REQUIRES(mutex_);
  void progress() noexcept REMORA_REQUIRES(mutex_);
  void post_backlog() noexcept REMORA_REQUIRES(mutex_);
  bool plan(OperationRecord& operation, std::size_t room) noexcept REMORA_REQUIRES(mutex_);
  [[nodiscard]] Posted& posted_at(std::uint64_t sequence) noexcept REMORA_REQUIRES(mutex_) {
    return ring_[sequence & mask_];
  }
  [[nodiscard]] std::uint64_t atomic_result(std::uint64_t sequence) const noexcept
      REMORA_REQUIRES(mutex_) {
    return atomic_results_[sequence & (atomic_results_.size() - 1)];
  }
  void add_split(const Posted& posted, const transport::WorkRequest& request) noexcept
      REMORA_REQUIRES(mutex_) {
    chain_.run = next_sequence_ + chain_.length;
    posted_at(chain_.run) = posted;
    chain_.requests[chain_.length++] = &request;
    chain_.any_split = true;
  }
  void add_whole(std::size_t room) noexcept REMORA_REQUIRES(mutex_);
  [[nodiscard]] bool continues_chain(const OperationRecord& operation) const noexcept
      REMORA_REQUIRES(mutex_);
  void join_chain(OperationRecord& operation) noexcept REMORA_REQUIRES(mutex_);
  bool use_local(transport::WorkRequest& request, LocalMemory* memory, Posted& posted) noexcept
      REMORA_REQUIRES(mutex_);
  void finish_split(OperationRecord& operation, EndTally& tally) noexcept REMORA_REQUIRES(mutex_);
  bool bounce(transport::WorkRequest& request, Posted& posted) noexcept REMORA_REQUIRES(mutex_);
  void post_chain(transport::Chain requests) noexcept REMORA_REQUIRES(mutex_);
  [[nodiscard]] std::size_t signaled_count(const transport::PostOutcome& outcome) const noexcept
      REMORA_REQUIRES(mutex_);
  void refuse_rest(const transport::PostOutcome& outcome, std::uint64_t first) noexcept
      REMORA_REQUIRES(mutex_);
  void run_on_idle_lane(OperationRecord& operation) noexcept REMORA_RELEASE(mutex_);
  void run_on(OperationRecord& operation, const transport::PostOutcome& outcome,
              std::span<transport::LaneCompletion> found) noexcept REMORA_RELEASE(mutex_);
  void cut_run(std::uint64_t sequence, std::uint64_t count) noexcept REMORA_REQUIRES(mutex_);
  void return_unposted(std::uint64_t sequence, EndTally& tally) noexcept REMORA_REQUIRES(mutex_);
  bool poll_completions() noexcept REMORA_REQUIRES(mutex_);
  void take_completions(std::span<transport::LaneCompletion> found, std::size_t count) noexcept
      REMORA_REQUIRES(mutex_);
  void retire_through(const transport::LaneCompletion& completion, EndTally& tally) noexcept
      REMORA_REQUIRES(mutex_);
  void distrust(const transport::LaneCompletion& completion) noexcept REMORA_REQUIRES(mutex_);
  void retire(std::uint64_t max_count, EndTally& tally) noexcept REMORA_REQUIRES(mutex_);
  void retire_split(Posted& posted, std::uint64_t sequence, EndTally& tally) noexcept
      REMORA_REQUIRES(mutex_);
  /// `named`: the device has reported this request although an older one was posted.
  void retire_failed(std::uint64_t sequence, CompletionStatus status, std::uint32_t vendor_error,
                     bool named, EndTally& tally) noexcept REMORA_REQUIRES(mutex_);
  [[nodiscard]] bool is_certain(std::uint64_t sequence) const noexcept REMORA_REQUIRES(mutex_);
  void settle(Posted& posted, EndTally& tally) noexcept REMORA_REQUIRES(mutex_);
  void settle_part(Posted& posted, OperationRecord& operation, EndTally& tally) noexcept
      REMORA_REQUIRES(mutex_);
  void settle_joined(Posted& posted, EndTally& tally) noexcept REMORA_REQUIRES(mutex_);
  /// Calls `each` for each operation that the request carries out.
  template <typename Each>
  static void for_each(const Posted& posted, Each each) noexcept {
    for (OperationRecord* at = posted.operation; at != nullptr;
         at = posted.joined ? at->next : nullptr)
      each(*at);
  }
  void push(CompletionSink& sink, OperationRecord& first, std::size_t count) noexcept
      REMORA_REQUIRES(mutex_);
  void finish(OperationRecord& operation, EndTally& tally) noexcept REMORA_REQUIRES(mutex_);
  void expire(Clock::time_point now) noexcept REMORA_REQUIRES(mutex_);
  void expire_backlog(Clock::time_point now) noexcept REMORA_REQUIRES(mutex_);
  void break_lane(Reason reason) noexcept REMORA_REQUIRES(mutex_);
  void end_lane() noexcept REMORA_REQUIRES(mutex_);
  void take_flushed(Deadline until) noexcept REMORA_REQUIRES(mutex_);
  /// Calls `wait`, in which this thread waits for the device and pushes nothing, so that
  /// settle_events() in another thread need not wait for this thread.
  template <typename Wait>
  void wait_for_device(const Wait& wait) noexcept REMORA_REQUIRES(mutex_) {
    tell_notifier();
    waits_for_device_.store(true, std::memory_order_release);
    wait();
    // Before the next push, so that the owner of an operation that is pushed sees this store with
    // the operation.
    waits_for_device_.store(false, std::memory_order_relaxed);
  }
  void end_for_good(Reason reason) noexcept REMORA_REQUIRES(mutex_);
  void wait_in_backlog(OperationRecord& operation) noexcept REMORA_REQUIRES(mutex_);
  void sleep_while_broken(std::unique_lock<LightMutex>& lock, Deadline until) noexcept
      REMORA_REQUIRES(mutex_);
  void sleep_until_woken(std::unique_lock<LightMutex>& lock, Deadline until) noexcept
      REMORA_REQUIRES(mutex_);
  void fail_backlog(EndTally& tally) noexcept REMORA_REQUIRES(mutex_);
  void finish_begun(EndTally& tally) noexcept REMORA_REQUIRES(mutex_);
  void end_hold() noexcept REMORA_REQUIRES(mutex_);
  void refuse_moved_atomics() noexcept REMORA_REQUIRES(mutex_);
  void renew_local_keys() noexcept REMORA_REQUIRES(mutex_);
  void release_lost_lease(OperationRecord& operation) noexcept REMORA_REQUIRES(mutex_);
  [[nodiscard]] static bool can_go_again(const Posted& posted) noexcept;
  bool keep_read_for_next_lane(Posted& posted, CompletionStatus status, std::uint32_t vendor_error,
                               EndTally& tally) noexcept REMORA_REQUIRES(mutex_);
  bool may_be_the_address(const OperationRecord& read) noexcept REMORA_REQUIRES(mutex_);
  bool keep_until_reason_is_known(Posted& posted, CompletionStatus status,
                                  std::uint32_t vendor_error) noexcept REMORA_REQUIRES(mutex_);
  void refuse_waiting(EndTally& tally) noexcept REMORA_REQUIRES(mutex_);
  [[nodiscard]] Outcome outcome_on_broken_lane(const OperationRecord& operation, bool posted,
                                               Clock::time_point now) const noexcept
      REMORA_REQUIRES(mutex_);
  [[nodiscard]] Reason why_broken() const noexcept REMORA_REQUIRES(mutex_);
  void tell_notifier() noexcept REMORA_REQUIRES(mutex_);
  void sleep(std::unique_lock<LightMutex>& lock, Deadline until) noexcept REMORA_REQUIRES(mutex_);

  std::unique_ptr<transport::Lane> lane_;
  Options options_;
  ClientMetrics metrics_;
  metrics::OwnedCells cells_;  ///< recorded with the lock held
  BrokenHandler on_broken_;

  /// Chains of operations whose submitters found the lane taken; the latest first.
  alignas(64) std::atomic<OperationRecord*> inbox_{nullptr};
  /// Guards the members below and lane_, except the functions of the lane that any thread may call.
  /// events_ and limits_, except the depths, do not change once they are set.
  alignas(64) LightMutex mutex_;
  LaneSleep lane_sleep_;
  LaneWaiters waiters_ REMORA_GUARDED_BY(mutex_){lane_sleep_};
  /// A set with the event descriptor of the current lane, until that lane ends. Empty if the system
  /// had no descriptors left.
  std::optional<FdSet> events_;
  End end_ REMORA_GUARDED_BY(mutex_);
  /// The time until which the lane may flush after move_to_error(). 0: it was not called.
  std::atomic<Clock::rep> flush_by_{0};
  /// The holder of the lane is in wait_for_device(): it has notified the owners of all operations
  /// that it has pushed.
  std::atomic<bool> waits_for_device_{false};

  std::vector<Posted> ring_ REMORA_GUARDED_BY(mutex_);  // by sequence & mask_
  std::uint64_t mask_ REMORA_GUARDED_BY(mutex_);
  std::uint64_t next_sequence_ REMORA_GUARDED_BY(mutex_) = 0;
  std::uint64_t retired_sequence_ REMORA_GUARDED_BY(mutex_) = 0;
  Chain chain_ REMORA_GUARDED_BY(mutex_);
  OperationList backlog_ REMORA_GUARDED_BY(mutex_);
  /// No operation in the backlog expires before this; min(): not known.
  Deadline backlog_expires_ REMORA_GUARDED_BY(mutex_) = Deadline::min();
  /// The read that failed last with kLocalQpOperationError, and the number of failures: see
  /// keep_read_for_next_lane(). The pointer is only compared.
  struct {
    const OperationRecord* read = nullptr;
    Clock::time_point submitted{};
    std::uint32_t failures = 0;
  } suspect_ REMORA_GUARDED_BY(mutex_);
  std::span<const std::uint64_t> atomic_results_ REMORA_GUARDED_BY(mutex_);
  transport::Lane::Limits limits_;
  /// The notifier of a sink to which operations were pushed: the thread that releases the lane
  /// notifies it.
  EventNotifier* notifier_ REMORA_GUARDED_BY(mutex_) = nullptr;
  Refused refused_ REMORA_GUARDED_BY(mutex_);  ///< kept until the lane has ended
  std::atomic<std::uint32_t> depth_;           ///< limits_.depth, for depth()
};

}  // namespace remora::detail
