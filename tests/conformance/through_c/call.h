#pragma once

/// Calls of the C API whose errors become those of C++.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <remora/remora_c.h>
#include <remora/result.h>

#include "through_c/memory.h"
#include "through_c/queue.h"

namespace remora::through_c {

/// `call` gets a remora_error, and returns a code.
template <typename Call>
Status carry_out(Call call) {
  remora_error error{};
  error.size = sizeof(error);
  const int code = call(&error);
  if (code == REMORA_OK) return {};
  // The code that is returned is in the struct, too.
  if (error.code != code) return Error{Code::kInternal, "codes of a call that differ"};
  return to_error(error);
}

/// The same for a call that makes a handle.
template <typename Made, typename Handle, typename Call>
Result<Made> make(Call call) {
  Handle* handle = nullptr;
  const Status done = carry_out([&](remora_error* error) { return call(&handle, error); });
  if (!done) return done.error();
  return Made{handle};
}

/// Errors: kOutOfRange (a piece does not lie within its memory).
template <typename Piece>
Result<std::vector<remora_piece>> to_pieces(std::span<const Piece> from) {
  std::vector<remora_piece> pieces(from.size());
  for (std::size_t i = 0; i < from.size(); ++i) {
    const LocalBytes& local = from[i].local();
    const int code = remora_piece_init(&pieces[i], local.data, local.length, local.memory);
    if (code != REMORA_OK) return Error{static_cast<Code>(code - 1), "remora_piece_init"};
  }
  return pieces;
}

inline std::uint64_t to_ns(std::chrono::nanoseconds time) noexcept {
  return static_cast<std::uint64_t>(std::max<std::int64_t>(time.count(), 0));
}

/// The offset of a block; one that no 64 bits hold lies outside of every region.
inline ByteOffset offset_of(Block block, std::uint64_t block_bytes) noexcept {
  std::uint64_t offset = 0;
  if (__builtin_mul_overflow(block.index, block_bytes, &offset)) return {UINT64_MAX};
  return {offset};
}

}  // namespace remora::through_c
