#pragma once

/// One flag for each zone of a group.

#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>

#include <remora/assert.h>

#include "mirror_layout.h"

namespace remora::volume::detail {

/// Thread-safe: each flag by itself.
class ZoneFlags {
 public:
  explicit ZoneFlags(std::uint32_t zones)
      : zones_{zones},
        word_count_{(zones + kZonesOfWord - 1) / kZonesOfWord},
        words_{new std::atomic<std::uint64_t>[word_count_] {}} {}

  [[nodiscard]] std::uint32_t zones() const noexcept { return zones_; }
  [[nodiscard]] std::uint32_t word_count() const noexcept { return word_count_; }
  [[nodiscard]] std::uint64_t word(std::uint32_t index) const noexcept {
    return words_[index].load(std::memory_order_acquire);
  }
  [[nodiscard]] bool has(std::uint32_t zone) const noexcept {
    return (word(zone / kZonesOfWord) & bit(zone)) != 0;
  }
  void set(std::uint32_t zone) noexcept {
    REMORA_ASSERT_HOT(zone < zones_, "only a zone of the group is marked");
    words_[zone / kZonesOfWord].fetch_or(bit(zone), std::memory_order_acq_rel);
  }
  void clear(std::uint32_t zone) noexcept {
    words_[zone / kZonesOfWord].fetch_and(~bit(zone), std::memory_order_acq_rel);
  }
  void set_word(std::uint32_t index, std::uint64_t value) noexcept {
    REMORA_ASSERT_HOT(index < word_count_, "a word has marks of the group");
    words_[index].store(value, std::memory_order_release);
  }
  /// The word, which is 0 then.
  std::uint64_t take_word(std::uint32_t index) noexcept {
    return words_[index].exchange(0, std::memory_order_acq_rel);
  }
  [[nodiscard]] bool any() const noexcept {
    for (std::uint32_t i = 0; i < word_count_; ++i)
      if (word(i) != 0) return true;
    return false;
  }
  [[nodiscard]] std::uint64_t count() const noexcept {
    std::uint64_t found = 0;
    for (std::uint32_t i = 0; i < word_count_; ++i)
      found += static_cast<std::uint64_t>(std::popcount(word(i)));
    return found;
  }
  [[nodiscard]] static constexpr std::uint64_t bit(std::uint32_t zone) noexcept {
    return std::uint64_t{1} << (zone % kZonesOfWord);
  }

 private:
  std::uint32_t zones_;
  std::uint32_t word_count_;
  std::unique_ptr<std::atomic<std::uint64_t>[]> words_;
};

}  // namespace remora::volume::detail
