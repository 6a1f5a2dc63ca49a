#pragma once

/// IntervalIndex: ranges of addresses, read without a lock, copied on write. Internal.
///
/// No range lies inside another, so the order of starts is the order of ends, and of all ranges
/// that start at or before an address the last one reaches farthest. Two levels: chunks of at most
/// kChunkMax ranges under one array; a change copies one chunk and the array. Within a chunk the
/// ranges lie in groups, a cache line each of starts, ends and items, under an array of the groups'
/// starts, since the cost of a look-up among many ranges is the cache lines for which it waits: the
/// array is small and stays in the cache, a group's lines are fetched together, and the item's own
/// line is left to the caller.
///
/// If there is no memory for a copy, an erased range leaves a place without an item, which the next
/// copy drops. Then an earlier range than the one at that place may be the result of a look-up.
///
/// Thread safety: find() and for_each_touching() concurrently with every call, inside a
/// ReaderEpoch::Guard or with the writers' lock held. insert() and erase() with the writers' lock.

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace remora::verbs::detail {

/// An object that is unlinked, while readers may still use it.
class Retired {
 public:
  virtual ~Retired() = default;
  virtual void destroy() noexcept = 0;

 private:
  friend class RetiredList;
  Retired* next_ = nullptr;
  std::uint64_t epoch_ = 0;
};

/// Destroys objects in order, once no reader uses them. Allocates nothing. Thread safety: under the
/// writers' lock.
class RetiredList {
 public:
  RetiredList() = default;
  ~RetiredList();
  RetiredList(const RetiredList&) = delete;
  RetiredList& operator=(const RetiredList&) = delete;

  /// Takes ownership of `object`.
  void add(Retired& object) noexcept;
  void collect() noexcept;

 private:
  static constexpr std::size_t kCollectAt = 64;
  void destroy_first() noexcept;
  Retired* first_ = nullptr;
  Retired* last_ = nullptr;
  std::size_t count_ = 0;
};

struct Interval {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
};

class IntervalIndex {
 public:
  static constexpr std::size_t kGroupRanges = 8;
  static constexpr std::size_t kGroups = 32;
  static constexpr std::size_t kChunkMax = kGroupRanges * kGroups;

  IntervalIndex() = default;
  ~IntervalIndex();
  IntervalIndex(const IntervalIndex&) = delete;
  IntervalIndex& operator=(const IntervalIndex&) = delete;

  /// The range that covers [begin, end), or null.
  [[nodiscard]] Interval* find(std::uintptr_t begin, std::uintptr_t end) const noexcept {
    const Top* const top = top_.load();
    if (top == nullptr) return nullptr;
    const std::size_t chunks = count_from(*top, begin);
    if (chunks == 0) return nullptr;
    const Chunk& chunk = *top->entries[chunks - 1].chunk;
    const std::size_t at = chunk.last_from(begin);
    Interval* const item = chunk.item(at);
    if (item != nullptr) [[likely]]
      return end <= chunk.end(at) ? item : nullptr;
    Interval* const earlier = before(*top, {chunks - 1, at});
    return earlier != nullptr && end <= earlier->end ? earlier : nullptr;
  }

  /// Calls `visit(Interval&)` for each range with a byte in [begin, end), by address.
  template <typename Visit>
  void for_each_touching(std::uintptr_t begin, std::uintptr_t end, Visit&& visit) const {
    const Top* const top = top_.load();
    if (top == nullptr) return;
    for (Place at = first_touching(*top, begin); at.chunk < top->entries.size();
         at = following(*top, at)) {
      Interval* const item = top->entries[at.chunk].chunk->item(at.range);
      if (item == nullptr) continue;
      if (item->begin >= end) return;
      visit(*item);
    }
  }

  /// `item` neither lies inside another range nor has one inside. When it throws std::bad_alloc,
  /// nothing has changed.
  void insert(Interval& item, RetiredList& retired);
  void erase(const Interval& item, RetiredList& retired) noexcept;

 private:
  struct alignas(64) Group {
    std::array<std::uintptr_t, kGroupRanges> begins;
    std::array<std::uintptr_t, kGroupRanges> ends;
    std::array<std::atomic<Interval*>, kGroupRanges> items;
  };
  struct Chunk final : Retired {
    std::size_t count = 0;  ///< with erased ones
    std::size_t half = 0;   ///< of the groups in use, rounded up to a power of two
    alignas(64) std::array<std::uintptr_t, kGroups> firsts;
    std::array<Group, kGroups> groups;

    Chunk() noexcept;
    void push(Interval& item) noexcept;
    [[nodiscard]] Interval* item(std::size_t at) const noexcept {
      return groups[at / kGroupRanges].items[at % kGroupRanges].load(std::memory_order_acquire);
    }
    [[nodiscard]] std::uintptr_t end(std::size_t at) const noexcept {
      return groups[at / kGroupRanges].ends[at % kGroupRanges];
    }
    /// The last place that starts at or before `begin`, if the first one does.
    [[nodiscard]] std::size_t last_from(std::uintptr_t begin) const noexcept {
      // Unused entries start behind all others.
      std::size_t group = 0;
      for (std::size_t step = half; step != 0; step /= 2)
        group += firsts[group + step] <= begin ? step : 0;
      __builtin_prefetch(&groups[group].ends);
      __builtin_prefetch(&groups[group].items);
      const auto& begins = groups[group].begins;
      std::size_t among = 0;
      for (std::size_t step = kGroupRanges / 2; step != 0; step /= 2)
        among += begins[among + step] <= begin ? step : 0;
      return group * kGroupRanges + among;
    }
    void destroy() noexcept override { delete this; }
  };
  struct Entry {
    std::uintptr_t begin;
    Chunk* chunk;
  };
  struct Top final : Retired {
    std::vector<Entry> entries;
    void destroy() noexcept override { delete this; }
  };
  struct Place {
    std::size_t chunk;
    std::size_t range;
  };
  using Live = std::array<Interval*, kChunkMax + 1>;

  /// The number of chunks that start at or before `begin`.
  [[nodiscard]] static std::size_t count_from(const Top& top, std::uintptr_t begin) noexcept {
    const Entry* const entries = top.entries.data();
    std::size_t low = 0;
    for (std::size_t left = top.entries.size(); left != 0;) {
      const std::size_t half = left / 2;
      const bool from = entries[low + half].begin <= begin;
      low += from ? half + 1 : 0;
      left = from ? left - half - 1 : half;
    }
    return low;
  }
  [[nodiscard]] static Place following(const Top& top, Place at) noexcept;
  [[nodiscard]] static Interval* before(const Top& top, Place at) noexcept;
  [[nodiscard]] static Place first_touching(const Top& top, std::uintptr_t begin) noexcept;
  [[nodiscard]] static std::size_t live_of(const Chunk& chunk, Live& live) noexcept;
  void replace(std::size_t at, std::size_t removed, std::span<Interval* const> live,
               RetiredList& retired);

  std::atomic<Top*> top_{nullptr};
};

}  // namespace remora::verbs::detail
