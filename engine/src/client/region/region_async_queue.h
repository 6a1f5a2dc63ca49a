#pragma once

#include <atomic>

#include <remora/mutex.h>
#include <remora/result.h>

namespace remora::detail {

/// The queue of Region::async() where no Executor runs; the first operation there makes it.
class RegionAsyncQueue {
 public:
  /// The queue itself as its region knows it.
  class Core {
   public:
    /// Ends the ownership of the region. No operation is in flight: each keeps the region.
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

  /// Returns the queue. The first call makes it by `make`, which returns a Result<Queue*>: all
  /// calls name the same Queue, which derives from Core. Any thread. Errors: those of `make`.
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
