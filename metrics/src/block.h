#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace remora::metrics {

/// One thread's cells: zeroed pages of its own, so that no cache line is shared with another thread
/// and histograms that a thread never touches cost it no memory.
///
///   cell 0 … 976 scratch: records of default-constructed handles next series_max cells counters,
///   densely then 977 cells each histograms: the sum, then Buckets::kCount slots
class Block {
 public:
  /// The block is empty if there is no memory.
  explicit Block(std::size_t cells) noexcept;
  ~Block();
  Block(Block&& other) noexcept
      : cells_{std::exchange(other.cells_, nullptr)}, count_{other.count_} {}
  Block& operator=(Block&&) = delete;

  [[nodiscard]] std::uint64_t* cells() const noexcept { return cells_; }
  /// Any thread.
  [[nodiscard]] std::uint64_t load(std::size_t cell) const noexcept {
    return std::atomic_ref<std::uint64_t>{cells_[cell]}.load(std::memory_order_relaxed);
  }

 private:
  std::uint64_t* cells_ = nullptr;
  std::size_t count_ = 0;
};

}  // namespace remora::metrics
