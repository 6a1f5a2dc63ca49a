#pragma once

/// A queue of operations as the poller that serves it knows it.

#include <atomic>
#include <cstddef>

#include <remora/assert.h>

#include "base/clock.h"

namespace remora::detail {

/// A queue whose operations a poller moves, and whose completions it hands to the application. Its
/// owner, its poller and each caller of keep() have a reference; the last drop() frees it.
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

  // By the poller.
  /// Moves what is in flight and calls back. True: something had ended.
  virtual bool serve() noexcept = 0;
  /// From now on completions wake the poller's `epoll`. Returns until when the poller may sleep.
  virtual Deadline arm(int epoll) noexcept = 0;
  /// There are operations to serve. The poller asks after arm(), since no event wakes it for these.
  [[nodiscard]] virtual bool ready() const noexcept = 0;
  /// The queue has no owner any more, and no operation in flight.
  [[nodiscard]] virtual bool over() const noexcept = 0;
  /// The poller's last call of the queue.
  virtual void leave(int epoll) noexcept = 0;

 protected:
  /// The poller has left the queue. Set with the poller's lock taken, by the poller's thread, which
  /// may read it without.
  [[nodiscard]] bool gone() const noexcept { return gone_; }

 private:
  friend class Poller;
  /// Drops a reference without freeing. True: it was the last.
  [[nodiscard]] bool release() noexcept {
    const std::size_t before = references_.fetch_sub(1, std::memory_order_acq_rel);
    REMORA_ASSERT_HOT(before > 0, "each reference is dropped once");
    return before == 1;
  }

  std::atomic<std::size_t> references_{1};
  PolledQueue* next_ = nullptr;  ///< of the same poller; used by the poller only
  bool gone_ = false;
};

}  // namespace remora::detail
