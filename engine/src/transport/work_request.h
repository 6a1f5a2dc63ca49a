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

/// The values of kCompareSwap and kFetchAdd.
struct AtomicOperands {
  std::uint64_t compare_or_add = 0;
  std::uint64_t swap = 0;  ///< not of kFetchAdd
};

/// The part of a request that only some opcodes have. The opcode selects the valid member.
union Operands {
  AtomicOperands atomic{};
  const Notice* notice;  ///< of kNotify; the engine owns it, and a lane reads it only in post()
};

/// One request. Plain data: the engine fills it in, the lane translates it. The members before
/// `opcode` belong to requests that reach memory; kNotify uses none of them.
struct WorkRequest {
  /// The local memory of reads and writes; the result of an atomic is in Lane::atomic_results().
  std::byte* local = nullptr;
  std::uint32_t length_bytes = 0;
  std::uint32_t local_key = 0;
  std::uint64_t remote_address = 0;  ///< as the grant's extent says
  std::uint32_t remote_key = 0;      ///< or a token: see ClientEndpoint::use_lane_keys()
  Opcode opcode = Opcode::kRead;
  Operands operands{};

  /// The caller sets the memory of an atomic.
  [[nodiscard]] static constexpr WorkRequest compare_swap(std::uint64_t expected,
                                                          std::uint64_t desired) noexcept {
    return {.opcode = Opcode::kCompareSwap,
            .operands = {.atomic = {.compare_or_add = expected, .swap = desired}}};
  }
  [[nodiscard]] static constexpr WorkRequest fetch_add(std::uint64_t delta) noexcept {
    return {.opcode = Opcode::kFetchAdd, .operands = {.atomic = {.compare_or_add = delta}}};
  }
  /// The caller keeps `notice` valid until Lane::post() of this request has returned.
  [[nodiscard]] static constexpr WorkRequest notify(const Notice& notice) noexcept {
    return {.opcode = Opcode::kNotify, .operands = {.notice = &notice}};
  }
  static WorkRequest notify(const Notice&& notice) = delete;

  [[nodiscard]] constexpr const Notice& notice() const noexcept {
    REMORA_ASSERT_HOT(opcode == Opcode::kNotify, "only a request that notifies has a notice");
    return *operands.notice;
  }
};
// Each operation holds a request, and batches copy it.
static_assert(sizeof(WorkRequest) <= 48);

/// Requests that are posted together, in order. The engine owns them and their notices; a lane does
/// not read them after post() has returned.
using Chain = std::span<const WorkRequest* const>;

}  // namespace remora::transport
