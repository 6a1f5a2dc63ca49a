#pragma once

/// The place of a session on one of the threads that serve tcp.

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include <remora/assert.h>

namespace remora::transport::tcp {

/// Counts as one session of a thread as long as it exists. Move-only.
class ThreadSeat {
 public:
  /// The number of sessions of each thread.
  using Counts = std::vector<std::atomic<std::size_t>>;

  /// The seat of a session that no thread counts: on the first thread.
  ThreadSeat() = default;
  ThreadSeat(std::shared_ptr<Counts> counts, std::size_t thread) noexcept
      : counts_{std::move(counts)}, thread_{thread} {
    REMORA_ASSERT(thread_ < counts_->size(), "a seat is at one of the threads");
    (*counts_)[thread_].fetch_add(1, std::memory_order_relaxed);
  }
  ~ThreadSeat() { leave(); }
  ThreadSeat(ThreadSeat&& other) noexcept
      : counts_{std::exchange(other.counts_, nullptr)}, thread_{other.thread_} {}
  ThreadSeat& operator=(ThreadSeat&& other) noexcept {
    if (this == &other) return *this;
    leave();
    counts_ = std::exchange(other.counts_, nullptr);
    thread_ = other.thread_;
    return *this;
  }
  ThreadSeat(const ThreadSeat&) = delete;
  ThreadSeat& operator=(const ThreadSeat&) = delete;

  /// Index of the thread.
  [[nodiscard]] std::size_t thread() const noexcept { return thread_; }

 private:
  void leave() noexcept {
    if (counts_ == nullptr) return;
    const std::size_t before = (*counts_)[thread_].fetch_sub(1, std::memory_order_relaxed);
    REMORA_ASSERT(before > 0, "a seat is left once");
  }

  std::shared_ptr<Counts> counts_;
  std::size_t thread_ = 0;
};

}  // namespace remora::transport::tcp
