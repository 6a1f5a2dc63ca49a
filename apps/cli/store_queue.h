#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>

#include <remora/remora.h>

namespace remora::apps {

class BenchWorker;
struct BenchPlan;

/// The queue of a region or of a volume. One owner.
class StoreQueue {
 public:
  virtual ~StoreQueue() = default;
  StoreQueue(const StoreQueue&) = delete;
  StoreQueue& operator=(const StoreQueue&) = delete;

  // Each of these submits one operation, for which there must be room. Registered memory stays
  // registered until the completion: the volume posts parts of a long operation later.
  virtual Status read(ByteOffset from, const Target& into, std::uint64_t tag) = 0;
  virtual Status write(ByteOffset to, const Source& from, std::uint64_t tag) = 0;
  virtual Status write_zeroes(ByteOffset at, std::uint64_t length_bytes, std::uint64_t tag) = 0;
  virtual Status flush_visible(std::uint64_t tag) = 0;

  /// The operations whose completions have not been handed out yet.
  [[nodiscard]] virtual std::size_t size() const noexcept = 0;
  /// Waits as the queue does, and calls `each(tag, status)` for each completion. Returns their
  /// number.
  template <typename Each>
  std::size_t wait(std::size_t at_least, const Each& each) {
    return wait_for(at_least, std::cref(each));  // a reference: nothing is allocated
  }

  /// Lets the worker measure the queue itself, in a loop that is compiled for its kind.
  virtual void measure(BenchWorker& worker, const BenchPlan& plan,
                       const std::atomic<bool>& stop) = 0;

 protected:
  StoreQueue() = default;

 private:
  using Completed = std::function<void(std::uint64_t tag, const Status& status)>;
  virtual std::size_t wait_for(std::size_t at_least, const Completed& each) = 0;
};

}  // namespace remora::apps
