#pragma once

/// A queue of operations, as its poller uses it.

#include <atomic>
#include <cstddef>

#include <remora/assert.h>

#include "base/clock.h"

namespace remora::detail {

/// A queue whose operations a poller moves, and whose completions it hands to the application. Its
/// owner, its poller and each caller of keep() have a reference; the last drop() frees it. Any
/// thread may call keep() and drop(); the poller calls the other functions.
class PolledQueue {
 public:
  PolledQueue() = default;
  PolledQueue(const PolledQueue&) = delete;
  PolledQueue& operator=(const PolledQueue&) = delete;
  virtual ~PolledQueue() = default;

  void keep() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
  void drop() noexcept {
    if (release()) delete this;
  }

  // The poller calls these:
  /// Moves the operations in flight and runs callbacks. Returns whether an operation has ended.
  virtual bool serve() noexcept = 0;
  /// From now on completions wake the poller's `epoll`. Returns the time until which the poller may
  /// sleep.
  virtual Deadline arm(int epoll) noexcept = 0;
  /// Whether there are operations to serve. The poller asks after arm(), since no event wakes it
  /// for them.
  [[nodiscard]] virtual bool ready() const noexcept = 0;
  /// Whether the queue has neither an owner nor operations in flight.
  [[nodiscard]] virtual bool over() const noexcept = 0;
  /// The last call of the poller.
  virtual void leave(int epoll) noexcept = 0;

 protected:
  /// Whether the poller has left the queue. The poller's thread sets it with the poller's lock, and
  /// may read it without the lock.
  [[nodiscard]] bool gone() const noexcept { return gone_; }

 private:
  friend class Poller;
  /// Releases a reference without freeing. True: it was the last one.
  [[nodiscard]] bool release() noexcept {
    const std::size_t before = references_.fetch_sub(1, std::memory_order_acq_rel);
    REMORA_ASSERT_HOT(before > 0, "each reference is dropped once");
    return before == 1;
  }

  std::atomic<std::size_t> references_{1};
  PolledQueue* next_ = nullptr;  ///< the next queue of the poller; used by the poller only
  bool gone_ = false;
};

}  // namespace remora::detail
