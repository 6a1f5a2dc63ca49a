#pragma once

/// Blocks by which a reader recognizes whether they are whole. A read that overlaps a write may
/// return any mixture of old and new bytes; a *sealed* block has a version and a checksum, so that
/// a reader recognizes a mixture, or a block in the wrong place, and reads again.
///
/// Each block has one writer at a time: the application must ensure that (by a lock, or an owner).
///
/// The seal is at the start of the block; numbers are little-endian:
///
/// | bytes   | what |
/// |---------|------|
/// | 0 … 3   | CRC32C of bytes 4 … end |
/// | 4 … 7   | "RMSB" |
/// | 8 … 15  | version, 1 or more |
/// | 16 … 23 | index of the block |
/// | 24 …    | payload |
///
/// A block of zeroes, as in a new region, has version 0.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

#include <remora/engine/buffer.h>
#include <remora/engine/region.h>
#include <remora/engine/types.h>
#include <remora/result.h>

namespace remora {

/// The bytes of the seal, at the start of a block.
inline constexpr std::size_t kSealBytes = 24;

/// The payload of a sealed block. `block`: at least kSealBytes.
[[nodiscard]] inline std::span<std::byte> payload_of(std::span<std::byte> block) noexcept {
  return block.subspan(kSealBytes);
}

/// Seals `block`, whose payload is in place, as the version `version` (not 0) of block `at`.
/// Errors: kInvalidArgument (the block is not longer than kSealBytes, or the version is 0).
Status seal(std::span<std::byte> block, Block at, std::uint64_t version) noexcept;

/// The version of a whole block; 0 for a block of zeroes. Errors: kInvalidArgument (too short);
/// kBusy: a mixture, another block's bytes, or never sealed.
Result<std::uint64_t> check_seal(std::span<const std::byte> block, Block at) noexcept;

/// seal() and write. `block`: as long as a block of the region; its first kSealBytes are the seal.
/// Blocks. Errors: those of seal() and Region::write; kInvalidArgument (not a block's length).
Status write_consistent(const Region& region, Block at, std::span<std::byte> block,
                        std::uint64_t version, std::chrono::nanoseconds deadline = {});

/// Reads until the block is whole, and returns its version. `block` as in write_consistent. Blocks.
/// Errors: those of Region::read; kInvalidArgument (not a block's length); kBusy: no whole block
/// before the deadline (zero: the engine's default for one read).
Result<std::uint64_t> read_consistent(const Region& region, Block at, std::span<std::byte> block,
                                      std::chrono::nanoseconds deadline = {});

}  // namespace remora
