#pragma once

#include <atomic>

#include <remora/mutex.h>
#include <remora/result.h>

namespace remora::detail {

/// Owns the queue of Region::async() for coroutines outside of an Executor; the first operation
/// makes it. Belongs to the region. Thread-safe.
class RegionAsyncQueue {
 public:
  /// The queue, as its region knows it.
  class Core {
   public:
    /// Ends the ownership of the region. No operation is in flight, since each would keep the
    /// region.
    virtual void close_idle() noexcept = 0;

   protected:
    ~Core() = default;
  };

  RegionAsyncQueue() = default;
  ~RegionAsyncQueue() {
    if (Core* const core = core_.load(std::memory_order_acquire)) core->close_idle();
  }
  RegionAsyncQueue(const RegionAsyncQueue&) = delete;
  RegionAsyncQueue& operator=(const RegionAsyncQueue&) = delete;

  /// Returns the queue. The first call makes it by `make`, which returns a Result<Queue*>. All
  /// calls use the same Queue type, which derives from Core. Any thread. Errors: those of `make`.
  template <typename Queue, typename Make>
  Result<Queue*> get(const Make& make) noexcept {
    if (Core* const made = core_.load(std::memory_order_acquire)) return static_cast<Queue*>(made);
    const MutexLock lock{creation_};
    if (Core* const made = core_.load(std::memory_order_relaxed)) return static_cast<Queue*>(made);
    Result<Queue*> made = make();
    if (made) core_.store(*made, std::memory_order_release);
    return made;
  }

 private:
  std::atomic<Core*> core_{nullptr};
  Mutex creation_;
};

}  // namespace remora::detail
