#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <remora/assert.h>

namespace remora::detail {

/// The free places of a table, by index: a stack whose top is in one word, with a tag that changes
/// on each use, so that an exchange fails when the top was taken and put back meanwhile.
/// Thread-safe, lock-free; only the constructor allocates.
class IndexStack {
 public:
  static constexpr std::uint32_t kNone = UINT32_MAX;

  /// The indices 0 … `count` - 1 are free; take() returns 0 first.
  explicit IndexStack(std::uint32_t count) : next_(count), head_{count == 0 ? kNone : 0} {
    for (std::uint32_t i = 0; i < count; ++i)
      next_[i].store(i + 1 < count ? i + 1 : kNone, std::memory_order_relaxed);
  }

  /// A free index, or kNone if there is none.
  [[nodiscard]] std::uint32_t take() noexcept {
    std::uint64_t head = head_.load(std::memory_order_acquire);
    while (true) {
      const auto index = static_cast<std::uint32_t>(head);
      if (index == kNone) return kNone;
      const std::uint64_t next = next_tag(head) | next_[index].load(std::memory_order_relaxed);
      if (!head_.compare_exchange_weak(head, next, std::memory_order_acquire)) continue;
      if constexpr (kHotAssertions) next_[index].store(kTaken, std::memory_order_relaxed);
      return index;
    }
  }
  /// `index`: of take(), once.
  void give_back(std::uint32_t index) noexcept {
    REMORA_ASSERT_HOT(index < next_.size(), "only a place of the table is given back");
    REMORA_ASSERT_HOT(next_[index].load(std::memory_order_relaxed) == kTaken,
                      "a place that was taken is given back once");
    std::uint64_t head = head_.load(std::memory_order_relaxed);
    do {
      next_[index].store(static_cast<std::uint32_t>(head), std::memory_order_relaxed);
    } while (!head_.compare_exchange_weak(head, next_tag(head) | index, std::memory_order_release,
                                          std::memory_order_relaxed));
  }

 private:
  /// What stands at a place that is taken, where assertions look at it.
  static constexpr std::uint32_t kTaken = kNone - 1;
  /// Layout of the word: index 32 bits, tag 32 bits.
  static constexpr std::uint64_t next_tag(std::uint64_t head) noexcept {
    return ((head >> 32U) + 1) << 32U;
  }

  std::vector<std::atomic<std::uint32_t>> next_;
  alignas(64) std::atomic<std::uint64_t> head_;
};

}  // namespace remora::detail
