#pragma once

/// Calls with many pairs, of a region and of a queue: a pair of C has the layout of the engine's
/// pair, and an outcome of the engine becomes one of C.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <span>
#include <type_traits>

#include <remora/c/region.h>
#include <remora/engine/many.h>
#include <remora/result.h>

#include "call.h"

namespace remora::c {

// A pair has the layout of the engine's pair.
static_assert(sizeof(remora_pair) == sizeof(ReadPair) && sizeof(remora_pair) == sizeof(WritePair) &&
              alignof(remora_pair) == alignof(ReadPair) &&
              offsetof(remora_pair, piece) == offsetof(ReadPair, into) &&
              offsetof(remora_pair, piece) == offsetof(WritePair, from));
static_assert(REMORA_PAIRS_MAX == kMaxMany);
static_assert(sizeof(remora_add_pair) == sizeof(FetchAddPair) &&
              offsetof(remora_add_pair, delta) == offsetof(FetchAddPair, delta) &&
              offsetof(remora_add_pair, before) == offsetof(FetchAddPair, before));
static_assert(sizeof(remora_swap_pair) == sizeof(CompareSwapPair) &&
              offsetof(remora_swap_pair, expected) == offsetof(CompareSwapPair, expected) &&
              offsetof(remora_swap_pair, desired) == offsetof(CompareSwapPair, desired) &&
              offsetof(remora_swap_pair, before) == offsetof(CompareSwapPair, before));

[[nodiscard]] inline std::span<const ReadPair> reads(const remora_pair* pairs,
                                                     std::size_t count) noexcept {
  return {reinterpret_cast<const ReadPair*>(pairs), count};
}
[[nodiscard]] inline std::span<const WritePair> writes(const remora_pair* pairs,
                                                       std::size_t count) noexcept {
  return {reinterpret_cast<const WritePair*>(pairs), count};
}
[[nodiscard]] inline std::span<FetchAddPair> additions(remora_add_pair* pairs,
                                                       std::size_t count) noexcept {
  return {reinterpret_cast<FetchAddPair*>(pairs), count};
}
[[nodiscard]] inline std::span<CompareSwapPair> swaps(remora_swap_pair* pairs,
                                                      std::size_t count) noexcept {
  return {reinterpret_cast<CompareSwapPair*>(pairs), count};
}

/// The caller's array of outcomes. The engine writes its own outcomes, which are shorter, to the
/// beginning of the array, so that no other memory is needed.
class Outcomes {
 public:
  Outcomes() = default;  ///< none are wanted
  Outcomes(remora_pair_outcome* each, std::size_t count) noexcept
      : each_{each}, count_{each == nullptr ? 0 : count} {}
  [[nodiscard]] std::span<ManyOutcome> for_engine() const noexcept {
    return {reinterpret_cast<ManyOutcome*>(each_), count_};
  }
  /// Before a call that the engine may refuse as a whole: finish() then sees that the engine wrote
  /// nothing.
  void mark() const noexcept {
    if (count_ != 0) std::memcpy(static_cast<void*>(each_), kUnwritten.data(), kUnwritten.size());
  }
  /// After that call.
  void finish(const Status& status) const noexcept {
    if (count_ == 0) return;
    if (!status && std::memcmp(each_, kUnwritten.data(), kUnwritten.size()) == 0)
      std::fill_n(each_, count_, to_c(status.error().code(), status.error().reason()));
    else
      convert();
  }
  /// Converts the engine's outcomes to those of the caller.
  void convert() const noexcept {
    const auto* const bytes = reinterpret_cast<const unsigned char*>(each_);
    // From the end: no element is written before the engine's outcome in it has been read.
    for (std::size_t i = count_; i-- > 0;) {
      ManyOutcome outcome;
      std::memcpy(&outcome, bytes + i * sizeof outcome, sizeof outcome);
      each_[i] = outcome.ok ? remora_pair_outcome{.code = REMORA_OK, .reason = REMORA_REASON_NONE}
                            : to_c(outcome.code, outcome.reason);
    }
  }

 private:
  static_assert(sizeof(ManyOutcome) <= sizeof(remora_pair_outcome) &&
                alignof(ManyOutcome) <= alignof(remora_pair_outcome) &&
                std::is_trivially_copyable_v<ManyOutcome>);
  /// No outcome of the engine has these bytes.
  static constexpr std::array<unsigned char, sizeof(ManyOutcome)> kUnwritten{0xff, 0xff, 0xff,
                                                                             0xff};
  static remora_pair_outcome to_c(Code code, Reason reason) noexcept {
    return {.code = to_code(code), .reason = to_reason(reason)};
  }
  remora_pair_outcome* each_ = nullptr;
  std::size_t count_ = 0;
};

}  // namespace remora::c
