#pragma once

/// Options of `remora bench` that are words: a mix of operations, lists of sizes and of depths.
/// Text in, values or one sentence for a person out; pure functions.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <vector>

namespace remora::apps {

enum class BenchOp : std::uint8_t { kRead, kWrite, kCompareSwap, kFetchAdd };
inline constexpr std::size_t kBenchOpCount = 4;
/// The bytes that one compare-and-swap or fetch-and-add changes.
inline constexpr std::uint64_t kAtomicBytes = 8;

/// "read", "write", "cas", "add".
[[nodiscard]] std::string_view to_string(BenchOp op) noexcept;
[[nodiscard]] constexpr bool is_atomic(BenchOp op) noexcept {
  return op == BenchOp::kCompareSwap || op == BenchOp::kFetchAdd;
}

/// The operations of a run, and how often each of them occurs.
class BenchMix {
 public:
  static constexpr std::uint32_t kWeightMax = 1'000'000;
  struct Share {
    BenchOp op = BenchOp::kRead;
    std::uint32_t weight = 1;
  };

  /// Only reads.
  BenchMix() : BenchMix{{Share{}}} {}
  /// `read`, `read,write` (equally often) or `read:70,write:30`: each operation at most once;
  /// either all have a weight of 1 … kWeightMax or none has.
  static tl::expected<BenchMix, std::string> parse(std::string_view text);
  /// The form that parse() takes: `read:70,write:30`.
  [[nodiscard]] std::string text() const;

  /// One to kBenchOpCount.
  [[nodiscard]] const std::vector<Share>& shares() const noexcept { return shares_; }
  [[nodiscard]] bool contains(BenchOp op) const noexcept;
  [[nodiscard]] bool any_atomic() const noexcept;
  [[nodiscard]] bool only_atomic() const noexcept;

  /// The operation for `random`, which is uniformly distributed over all 64-bit words.
  [[nodiscard]] BenchOp pick(std::uint64_t random) const noexcept {
    __extension__ using Wide = unsigned __int128;
    const auto drawn =
        static_cast<std::uint64_t>((static_cast<Wide>(random) * below_.back()) >> 64U);
    std::size_t at = 0;
    while (drawn >= below_[at]) ++at;
    return shares_[at].op;
  }

 private:
  explicit BenchMix(std::vector<Share> shares);

  std::vector<Share> shares_;
  std::vector<std::uint64_t> below_;  ///< sums of the weights up to and including each share
};

/// The most elements of a list.
inline constexpr std::size_t kBenchListMax = 32;

/// `4KiB` or `64B,4KiB,64KiB`; each at least 1 byte.
tl::expected<std::vector<std::uint64_t>, std::string> parse_size_list(std::string_view text);
/// `32` or `1,8,32`; each from 1 to kMaxQueueDepth.
tl::expected<std::vector<std::size_t>, std::string> parse_depth_list(std::string_view text);

}  // namespace remora::apps
