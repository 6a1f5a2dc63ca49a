#pragma once

/// Pairs and outcomes of calls with many, from C++ to C and back.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <remora/engine/many.h>
#include <remora/remora_c.h>
#include <remora/result.h>

#include "through_c/memory.h"

namespace remora::through_c {

/// Errors: kOutOfRange (a piece does not lie within its memory): a program in C learns it from
/// remora_piece_init(), before it makes the call.
inline Result<remora_pair> to_pair(ByteOffset offset, const LocalBytes& local) {
  remora_pair pair{.offset = offset.bytes, .piece = {}};
  const int code = remora_piece_init(&pair.piece, local.data, local.length, local.memory);
  if (code != REMORA_OK) return Error{static_cast<Code>(code - 1), "remora_piece_init"};
  return pair;
}
inline Result<remora_pair> to_pair(const ReadPair& pair) {
  return to_pair(pair.from, pair.into.local());
}
inline Result<remora_pair> to_pair(const WritePair& pair) {
  return to_pair(pair.to, pair.from.local());
}
template <typename Pair>
Result<std::vector<remora_pair>> to_pairs(std::span<const Pair> from) {
  std::vector<remora_pair> pairs;
  pairs.reserve(from.size());
  for (const Pair& each : from) {
    const auto pair = to_pair(each);
    if (!pair) return pair.error();
    pairs.push_back(*pair);
  }
  return pairs;
}

inline std::vector<remora_add_pair> to_pairs(std::span<const FetchAddPair> from) {
  std::vector<remora_add_pair> pairs;
  for (const FetchAddPair& each : from)
    pairs.push_back({.offset = each.at.bytes, .delta = each.delta, .before = each.before});
  return pairs;
}
inline std::vector<remora_swap_pair> to_pairs(std::span<const CompareSwapPair> from) {
  std::vector<remora_swap_pair> pairs;
  for (const CompareSwapPair& each : from)
    pairs.push_back({.offset = each.at.bytes,
                     .expected = each.expected,
                     .desired = each.desired,
                     .before = each.before});
  return pairs;
}
/// The old values, from the pairs of C to those of C++.
template <typename InC, typename Pair>
void take_before(const std::vector<InC>& from, std::span<Pair> to) {
  for (std::size_t i = 0; i < from.size(); ++i) to[i].before = from[i].before;
}

/// An outcome that no call has written.
inline remora_pair_outcome unwritten() noexcept { return {.code = -1, .reason = 0}; }

/// Outcomes of C become those of C++, which also have the device's status: that is not in C. Those
/// that were not written stay.
inline void give_outcomes(const std::vector<remora_pair_outcome>& from, std::span<ManyOutcome> to) {
  for (std::size_t i = 0; i < from.size() && i < to.size(); ++i) {
    if (from[i].code == REMORA_OK)
      to[i] = {};
    else if (from[i].code != unwritten().code)
      to[i] = {.ok = false,
               .code = static_cast<Code>(from[i].code - 1),
               .reason = static_cast<Reason>(from[i].reason)};
  }
}

}  // namespace remora::through_c
