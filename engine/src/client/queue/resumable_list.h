#pragma once

#include <cstddef>
#include <utility>

#include <remora/assert.h>
#include <remora/engine/async.h>

namespace remora::detail {

/// A list of Resumables in the order in which they were appended. Owns none of them. Not
/// thread-safe.
class ResumableList {
 public:
  [[nodiscard]] bool empty() const noexcept { return first_ == nullptr; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  void append(Resumable& job) noexcept {
    job.next = nullptr;
    (first_ == nullptr ? first_ : last_->next) = &job;
    last_ = &job;
    ++size_;
  }
  /// Removes the first Resumable and runs it. Only while the list is not empty.
  void run_first() noexcept {
    REMORA_ASSERT_HOT(first_ != nullptr && size_ != 0, "a list counts its coroutines");
    Resumable& job = *std::exchange(first_, first_->next);
    --size_;
    job.run(job);
  }

 private:
  Resumable* first_ = nullptr;
  Resumable* last_ = nullptr;  ///< only while the list is not empty
  std::size_t size_ = 0;
};

}  // namespace remora::detail
