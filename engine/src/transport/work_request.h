#pragma once

/// Work requests: the operations that the engine posts on a lane.

#include <cstddef>
#include <cstdint>
#include <span>

#include <remora/assert.h>
#include <remora/engine/types.h>

#include "transport/notice.h"

namespace remora::transport {

enum class Opcode : std::uint8_t {
  kRead,
  kWrite,
  kCompareSwap,
  kFetchAdd,
  kWriteZeroes,  ///< on lanes whose limits say so; no local memory
  kNotify,       ///< tells the serving application of a write: Notice
  kFlush,        ///< reads a byte into the lane's memory: makes earlier writes visible
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

/// One request. Plain data: the engine fills it in, the lane translates it. A notice has no memory
/// and no key: to_request() stores the notice's members in the address, the key and the two
/// operands, and to_notice() reads them from there. Separate members would make every request
/// longer.
struct WorkRequest {
  /// The local memory of reads and writes; the result of an atomic is in Lane::atomic_results().
  std::byte* local = nullptr;
  std::uint32_t length_bytes = 0;
  std::uint32_t local_key = 0;
  std::uint64_t remote_address = 0;  ///< as the grant's extent says
  std::uint32_t remote_key = 0;      ///< or a token: see ClientEndpoint::use_lane_keys()
  Opcode opcode = Opcode::kRead;
  std::uint64_t compare_or_add = 0;
  std::uint64_t swap = 0;
};

/// The request that carries `notice`, whose fields go where the frames of tcp carry them.
[[nodiscard]] constexpr WorkRequest to_request(const Notice& notice) noexcept {
  return {.remote_address = notice.offset_bytes,
          .remote_key = notice.tag,
          .opcode = Opcode::kNotify,
          .compare_or_add = notice.length_bytes,
          .swap = notice.grant_id};
}
/// The notice of a request whose opcode is kNotify.
[[nodiscard]] constexpr Notice to_notice(const WorkRequest& request) noexcept {
  REMORA_ASSERT_HOT(request.opcode == Opcode::kNotify, "only the request of a notice has one");
  return {.grant_id = request.swap,
          .offset_bytes = request.remote_address,
          .length_bytes = request.compare_or_add,
          .tag = request.remote_key};
}

/// Requests that are posted together, in order. The engine owns them; a lane does not read them
/// after post() has returned.
using Chain = std::span<const WorkRequest* const>;

}  // namespace remora::transport
