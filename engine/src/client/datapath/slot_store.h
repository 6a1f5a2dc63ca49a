#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <remora/assert.h>
#include <remora/owned.h>
#include <remora/result.h>

#include "client/datapath/local_memory.h"
#include "client/datapath/slab.h"

namespace remora::detail {

/// The slots of a slab, of equal size, and the stack of the free slots. One word holds the top of
/// the stack, the number of slots in use, and a tag that changes with each exchange of the word, so
/// that an exchange fails if the top was taken and given back meanwhile. The store destroys itself
/// when its last handle and its last slot are gone: since the word counts slots, they need no
/// reference counts. Thread-safe and lock-free.
class SlotStore {
 public:
  static Result<std::shared_ptr<SlotStore>> create(std::size_t slot_count, std::size_t slot_bytes,
                                                   const SlabOptions& options = {});
  SlotStore(const SlotStore&) = delete;
  SlotStore& operator=(const SlotStore&) = delete;

  static constexpr std::uint32_t kNone = (1U << 20U) - 1;
  static constexpr std::size_t kMaxSlots = kNone;
  /// The index of a free slot, or kNone.
  [[nodiscard]] std::uint32_t take() noexcept;
  struct Taken {
    std::uint32_t first;  ///< undefined if the count is 0
    std::uint32_t count;
  };
  /// Takes up to `count` free slots, with one exchange. They are chained: the caller calls
  /// unchain() for each of them, from the first one on.
  [[nodiscard]] Taken take_chain(std::size_t count) noexcept;
  /// Returns the slot that is chained behind this slot of take_chain(); behind the last one there
  /// is none, and the result is undefined.
  [[nodiscard]] std::uint32_t unchain(std::uint32_t index) noexcept {
    const std::uint32_t next = next_[index].load(std::memory_order_relaxed);
    if constexpr (kHotAssertions) next_[index].store(kOut, std::memory_order_relaxed);
    return next;
  }
  void give_back(std::uint32_t index) noexcept { give_back(index, index, 1); }
  /// Gives back `count` slots that were chained from `first` to `last`.
  void give_back(std::uint32_t first, std::uint32_t last, std::uint32_t count) noexcept;
  /// Chains two slots that are in use and will be given back together.
  void chain(std::uint32_t index, std::uint32_t next) noexcept {
    REMORA_ASSERT_HOT(is_out(index) && is_out(next), "only slots that were taken are chained");
    next_[index].store(next, std::memory_order_relaxed);
  }
  [[nodiscard]] std::span<std::byte> slot(std::uint32_t index) const noexcept {
    return slab_.bytes().subspan(index * stride_bytes_, slot_bytes_);
  }
  [[nodiscard]] std::size_t slot_bytes() const noexcept { return slot_bytes_; }
  [[nodiscard]] std::size_t slot_count() const noexcept { return next_.size(); }
  [[nodiscard]] const std::shared_ptr<LocalMemory>& memory() const noexcept { return memory_; }
  /// Whether a parent process made the store.
  [[nodiscard]] bool foreign() const noexcept { return made_in_ != this_process(); }

 private:
  SlotStore(Slab slab, std::size_t slot_count, std::size_t slot_bytes, std::size_t stride_bytes);
  ~SlotStore() = default;
  /// Called when the last handle is destroyed.
  void abandon() noexcept;

  /// What stands at a slot that is out, where assertions look at it.
  static constexpr std::uint32_t kOut = UINT32_MAX;
  /// Only where kHotAssertions.
  [[nodiscard]] bool is_out(std::uint32_t index) const noexcept {
    return index < next_.size() && next_[index].load(std::memory_order_relaxed) == kOut;
  }
  /// Layout of the word: index 20 bits, slots in use 20, abandoned 1, tag 23.
  static constexpr std::uint64_t kIndexMask = kNone;
  static constexpr std::uint64_t kOneOut = std::uint64_t{1} << 20U;
  static constexpr std::uint64_t kOutMask = kIndexMask << 20U;
  static constexpr std::uint64_t kAbandoned = std::uint64_t{1} << 40U;
  static constexpr std::uint64_t kOneTag = std::uint64_t{1} << 41U;
  [[nodiscard]] static bool over(std::uint64_t head) noexcept {
    return (head & (kAbandoned | kOutMask)) == kAbandoned;
  }

  Slab slab_;
  std::size_t slot_bytes_;
  std::size_t stride_bytes_;
  const std::uint32_t made_in_ = made_here();
  std::shared_ptr<LocalMemory> memory_;  // deregistered before the slab is unmapped
  std::vector<std::atomic<std::uint32_t>> next_;
  alignas(64) std::atomic<std::uint64_t> head_{0};
};

inline std::uint32_t SlotStore::take() noexcept {
  std::uint64_t head = head_.load(std::memory_order_acquire);
  while (true) {
    const auto index = static_cast<std::uint32_t>(head & kIndexMask);
    if (index == kNone) return kNone;
    const std::uint64_t next =
        ((head & ~kIndexMask) + kOneTag + kOneOut) | next_[index].load(std::memory_order_relaxed);
    if (!head_.compare_exchange_weak(head, next, std::memory_order_acquire)) continue;
    if constexpr (kHotAssertions) next_[index].store(kOut, std::memory_order_relaxed);
    return index;
  }
}

inline SlotStore::Taken SlotStore::take_chain(std::size_t count) noexcept {
  const std::size_t slot_count = next_.size();
  std::uint64_t head = head_.load(std::memory_order_acquire);
  while (true) {
    const auto first = static_cast<std::uint32_t>(head & kIndexMask);
    // If another thread takes or gives back slots meanwhile, the chain may lead anywhere in the
    // pool, or to kOut. The exchange fails then, since the tag has changed.
    std::uint32_t behind = first;
    std::uint32_t taken = 0;
    while (taken < count && behind < slot_count) {
      behind = next_[behind].load(std::memory_order_relaxed);
      ++taken;
    }
    if (taken == 0) return {first, 0};
    const std::uint64_t next = ((head & ~kIndexMask) + kOneTag + taken * kOneOut) | behind;
    if (head_.compare_exchange_weak(head, next, std::memory_order_acquire)) return {first, taken};
  }
}

inline void SlotStore::give_back(std::uint32_t first, std::uint32_t last,
                                 std::uint32_t count) noexcept {
  if (foreign()) [[unlikely]]
    return;  // the store is never destroyed here, so the slot may stay in use
  REMORA_ASSERT_HOT(is_out(last), "a slot that was taken is given back once");
  std::uint64_t head = head_.load(std::memory_order_relaxed);
  std::uint64_t next = 0;
  do {
    REMORA_ASSERT_HOT((head & kOutMask) >= count * kOneOut,
                      "no more slots are given back than were taken");
    next_[last].store(static_cast<std::uint32_t>(head & kIndexMask), std::memory_order_relaxed);
    next = ((head & ~kIndexMask) + kOneTag - count * kOneOut) | first;
  } while (!head_.compare_exchange_weak(head, next, std::memory_order_acq_rel,
                                        std::memory_order_relaxed));
  if (over(next)) delete this;
}

}  // namespace remora::detail
