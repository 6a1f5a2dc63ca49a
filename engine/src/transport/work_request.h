#pragma once

/// What the engine posts on a lane.

#include <cstddef>
#include <cstdint>
#include <span>

#include <remora/engine/types.h>

namespace remora::transport {

enum class Opcode : std::uint8_t {
  kRead,
  kWrite,
  kCompareSwap,
  kFetchAdd,
  kWriteZeroes,  ///< over lanes whose limits say so; no local memory
  kNotify,       ///< tells the serving application; see WorkRequest
  kFlush,  ///< reads a byte into the lane's own memory: what was written before is visible then
};

inline constexpr std::size_t kOpcodes = static_cast<std::size_t>(Opcode::kFlush) + 1;

[[nodiscard]] constexpr bool is_atomic(Opcode opcode) noexcept {
  return opcode == Opcode::kCompareSwap || opcode == Opcode::kFetchAdd;
}
/// Moves bytes between local and remote memory.
[[nodiscard]] constexpr bool is_transfer(Opcode opcode) noexcept {
  return opcode == Opcode::kRead || opcode == Opcode::kWrite;
}
[[nodiscard]] constexpr bool is_write(Opcode opcode) noexcept {
  return opcode == Opcode::kWrite || opcode == Opcode::kWriteZeroes;
}
[[nodiscard]] constexpr Rights right_for(Opcode opcode) noexcept {
  if (is_atomic(opcode)) return Rights::kAtomic;
  return is_write(opcode) ? Rights::kWrite : Rights::kRead;
}

/// One request. Plain data: the engine fills it in, the lane translates it. Of kNotify:
/// remote_address is the offset in the region, compare_or_add the length, swap the grant's id,
/// remote_key the tag.
struct WorkRequest {
  /// Of reads and writes; the result of an atomic lands in Lane::atomic_results().
  std::byte* local = nullptr;
  std::uint32_t length_bytes = 0;
  std::uint32_t local_key = 0;
  std::uint64_t remote_address = 0;  ///< as the grant's extent says
  std::uint32_t remote_key = 0;      ///< or a token of it: see ClientEndpoint::use_lane_keys()
  Opcode opcode = Opcode::kRead;
  std::uint64_t compare_or_add = 0;
  std::uint64_t swap = 0;
};

/// Requests that are posted together, in order. The engine owns them; a lane does not read them
/// after post() has returned.
using Chain = std::span<const WorkRequest* const>;

}  // namespace remora::transport
