#pragma once

#include <atomic>
#include <cstddef>
#include <span>

#include <remora/assert.h>

#include "client/datapath/event_notifier.h"
#include "client/datapath/operation_owner.h"

namespace remora::detail {

struct OperationRecord;

/// A ring of finished operations, which belongs to their submitter. The thread that holds the lane
/// pushes, one thread at a time; the owner takes without a lock. After push() the records belong to
/// the owner again.
class CompletionSink {
 public:
  /// Operations that ended together, chained by `next`.
  struct Run {
    OperationRecord* first;
    std::size_t count;
  };

  /// `ring`: its size is a power of two, and at least the number of operations that are submitted
  /// to this sink and not taken yet. Borrowed. `owner`: the owner of the operations; null if they
  /// end in the call that submits them. Borrowed.
  explicit CompletionSink(std::span<Run> ring, const OperationOwner* owner = nullptr) noexcept
      : ring_{ring.data()}, mask_{ring.size() - 1}, owner_{owner} {}
  CompletionSink(const CompletionSink&) = delete;
  CompletionSink& operator=(const CompletionSink&) = delete;

  /// From now on a thread that pushes also notifies `notifier`, before it releases the lane. The
  /// owner calls this before it submits; if it calls it later, it checks the sink again after that.
  /// Borrowed: see LaneDriver::settle_events().
  void watch(EventNotifier& notifier) noexcept {
    notifier_.store(&notifier, std::memory_order_relaxed);
  }
  [[nodiscard]] const OperationOwner* owner() const noexcept { return owner_; }
  /// The notifier of watch(), or null.
  [[nodiscard]] EventNotifier* notifier() const noexcept {
    return notifier_.load(std::memory_order_relaxed);
  }

  /// Gives the owner the chain of `count` operations that begins at `first`.
  void push(OperationRecord& first, std::size_t count = 1) noexcept {
    ring_[runs_pushed_++ & mask_] = {&first, count};
    // The pushing thread does not access the records or the sink after this.
    pushed_.store(pushed_.load(std::memory_order_relaxed) + count, std::memory_order_release);
  }
  /// Number of operations that take_run() will return, in one run or several.
  [[nodiscard]] std::size_t ready() const noexcept {
    return pushed_.load(std::memory_order_acquire) - taken_;
  }
  /// Takes the oldest run, whose operations ended in the order of their chain. Only while ready()
  /// is not 0.
  [[nodiscard]] Run take_run() noexcept {
    REMORA_ASSERT_HOT(ready() != 0, "a run is taken while one is there");
    const Run run = ring_[runs_taken_++ & mask_];
    taken_ += run.count;
    return run;
  }

 private:
  Run* ring_;
  std::size_t mask_;
  const OperationOwner* owner_;
  std::size_t taken_ = 0;
  std::size_t runs_taken_ = 0;
  alignas(64) std::atomic<std::size_t> pushed_{0};
  std::size_t runs_pushed_ = 0;
  std::atomic<EventNotifier*> notifier_{nullptr};
};

}  // namespace remora::detail
