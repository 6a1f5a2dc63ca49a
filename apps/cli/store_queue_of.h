#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

#include <remora/remora.h>

#include "cli/bench_loop.h"
#include "cli/store_queue.h"

namespace remora::apps {

/// A StoreQueue of the engine's Queue, or of the queue of a volume.
template <typename AnyQueue>
class StoreQueueOf final : public StoreQueue {
 public:
  explicit StoreQueueOf(AnyQueue queue) : queue_{std::move(queue)} {}

  Status read(ByteOffset from, const Target& into, std::uint64_t tag) override {
    queue_.read(from, into, tag);
    return queue_.submit();
  }
  Status write(ByteOffset to, const Source& from, std::uint64_t tag) override {
    queue_.write(to, from, tag);
    return queue_.submit();
  }
  Status write_zeroes(ByteOffset at, std::uint64_t length_bytes, std::uint64_t tag) override {
    queue_.write_zeroes(at, length_bytes, tag);
    return queue_.submit();
  }
  Status flush_visible(std::uint64_t tag) override {
    queue_.flush_visible(tag);
    return queue_.submit();
  }

  [[nodiscard]] std::size_t size() const noexcept override { return queue_.size(); }
  void measure(BenchWorker& worker, const BenchPlan& plan, const std::atomic<bool>& stop) override {
    worker.work(queue_, plan, stop);
  }

 private:
  using Completed = std::function<void(std::uint64_t tag, const Status& status)>;
  std::size_t wait_for(std::size_t at_least, const Completed& each) override {
    const auto found = queue_.wait(at_least);
    for (const auto& completion : found)
      each(completion.tag(), completion.ok() ? ok_status() : Status{completion.error()});
    return found.size();
  }

  AnyQueue queue_;
};

}  // namespace remora::apps
