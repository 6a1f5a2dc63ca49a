#pragma once

/// IntervalIndex: ranges of addresses, read without a lock, copied on write. Internal.
///
/// No range lies inside another, so the order of starts is the order of ends, and the last range
/// that starts at or before an address reaches farthest of those. Two levels: chunks of at most
/// kChunkMax ranges under one array; a change copies one chunk and the array.
///
/// Thread safety: find() and for_each_touching() concurrently with everything, inside a
/// ReaderEpoch::Guard or with the writers' lock held. insert() and erase() with the writers' lock.

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace remora::verbs::detail {

/// What is unlinked and may still be read.
class Retired {
 public:
  virtual ~Retired() = default;
  std::uint64_t epoch = 0;
};

/// Frees in order, once nobody reads. Thread safety: under the writers' lock.
class RetiredList {
 public:
  /// Room for `count` more add(), which then do not fail.
  void reserve(std::size_t count) { list_.reserve(list_.size() + count); }
  void add(std::unique_ptr<Retired> object);
  void collect() noexcept;

 private:
  static constexpr std::size_t kCollectAt = 64;
  std::vector<std::unique_ptr<Retired>> list_;
};

struct Interval {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
};

class IntervalIndex {
 public:
  static constexpr std::size_t kChunkMax = 512;

  IntervalIndex() = default;
  ~IntervalIndex();
  IntervalIndex(const IntervalIndex&) = delete;
  IntervalIndex& operator=(const IntervalIndex&) = delete;

  /// The range that covers [begin, end), or null.
  [[nodiscard]] Interval* find(std::uintptr_t begin, std::uintptr_t end) const noexcept {
    const Top* const top = top_.load();
    if (top == nullptr) return nullptr;
    auto at = std::upper_bound(top->begins.begin(), top->begins.end(), begin);
    if (at == top->begins.begin()) return nullptr;
    const Chunk& chunk = *top->chunks[static_cast<std::size_t>(at - top->begins.begin() - 1)];
    const auto* const first = chunk.ranges.data();
    const auto* const after = std::upper_bound(
        first, first + chunk.count, begin,
        [](std::uintptr_t at_most, const Range& range) { return at_most < range.begin; });
    const Range& range = *(after - 1);
    return end <= range.end ? range.item : nullptr;
  }

  /// Calls `visit(Interval&)` for each range with a byte in [begin, end), by address.
  template <typename Visit>
  void for_each_touching(std::uintptr_t begin, std::uintptr_t end, Visit&& visit) const {
    const Top* const top = top_.load();
    if (top == nullptr) return;
    const auto last = std::upper_bound(top->ends.begin(), top->ends.end(), begin);
    for (auto c = static_cast<std::size_t>(last - top->ends.begin()); c < top->chunks.size(); ++c) {
      const Chunk& chunk = *top->chunks[c];
      const auto* const first = chunk.ranges.data();
      const auto* const last_range = first + chunk.count;
      for (const auto *range = std::upper_bound(
               first, last_range, begin,
               [](std::uintptr_t at_most, const Range&one) { return at_most < one.end; });
           range != last_range; ++range) {
        if (range->begin >= end) return;
        visit(*range->item);
      }
    }
  }

  /// `item` neither lies inside another range nor has one inside.
  void insert(Interval& item, RetiredList& retired);
  void erase(const Interval& item, RetiredList& retired);

 private:
  struct Range {  // together: the search ends on the line that is read next
    std::uintptr_t begin;
    std::uintptr_t end;
    Interval* item;
  };
  struct Chunk final : Retired {
    std::size_t count = 0;
    std::array<Range, kChunkMax> ranges;
    void push(Interval* item) noexcept;
  };
  struct Top final : Retired {
    std::vector<std::uintptr_t> begins;
    std::vector<std::uintptr_t> ends;
    std::vector<Chunk*> chunks;
  };
  [[nodiscard]] static std::size_t chunk_of(const Top& top, std::uintptr_t begin) noexcept;
  void replace(std::size_t at, std::size_t removed, std::vector<std::unique_ptr<Chunk>> added,
               RetiredList& retired);

  std::atomic<Top*> top_{nullptr};
};

}  // namespace remora::verbs::detail
