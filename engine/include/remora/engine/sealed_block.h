#pragma once

/// Blocks that tell whether they are whole. A read that overlaps a write may return any mixture of
/// old and new bytes; a *sealed* block carries a version and a checksum, so that a reader sees a
/// mixture, and a block that stands in the wrong place, and reads again.
///
/// One writer at a time a block: what keeps writers apart (a lock, an owner) is the application's.
///
/// The seal stands at the start of the block; numbers are little-endian:
///
/// | bytes   | what |
/// |---------|------|
/// | 0 … 3   | CRC32C of bytes 4 … end |
/// | 4 … 7   | "RMSB" |
/// | 8 … 15  | version, 1 or more |
/// | 16 … 23 | index of the block |
/// | 24 …    | payload |
///
/// A block of nothing but zeroes, as regions are born, has version 0.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

#include <remora/engine/buffer.h>
#include <remora/engine/region.h>
#include <remora/engine/types.h>
#include <remora/result.h>

namespace remora {

inline constexpr std::size_t kSealBytes = 24;

/// Where a sealed block has its payload. `block`: at least kSealBytes.
[[nodiscard]] inline std::span<std::byte> payload_of(std::span<std::byte> block) noexcept {
  return block.subspan(kSealBytes);
}

/// Seals `block`, whose payload is in place, as the version `version` (not 0) of block `at`.
/// Errors: kInvalidArgument (longer than kSealBytes it must be, and the version not 0).
Status seal(std::span<std::byte> block, Block at, std::uint64_t version) noexcept;

/// The version of a block that is whole; 0 for one of zeroes. Errors: kInvalidArgument (too short);
/// kBusy: a mixture, another block's bytes, or never sealed.
Result<std::uint64_t> check_seal(std::span<const std::byte> block, Block at) noexcept;

/// seal() and write. `block`: one whole block of the region, the first kSealBytes of it the seal's.
/// Blocks. Errors: those of seal() and Region::write; kInvalidArgument (not a block's length).
Status write_consistent(const Region& region, Block at, std::span<std::byte> block,
                        std::uint64_t version, std::chrono::nanoseconds deadline = {});

/// Reads until the block is whole; its version. `block` as in write_consistent. Blocks.
/// Errors: those of Region::read; kInvalidArgument (not a block's length); kBusy: no whole block
/// before the deadline (zero: the engine's default for one read).
Result<std::uint64_t> read_consistent(const Region& region, Block at, std::span<std::byte> block,
                                      std::chrono::nanoseconds deadline = {});

}  // namespace remora
