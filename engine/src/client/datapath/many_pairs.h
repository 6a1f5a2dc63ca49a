#pragma once

/// Functions that fill a record from each kind of pair of remora/engine/many.h, and the error of a
/// pair.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <remora/engine/many.h>
#include <remora/result.h>

#include "client/datapath/operation_record.h"
#include "transport/work_request.h"

namespace remora::detail {

[[nodiscard]] constexpr transport::Opcode opcode_of(const ReadPair* /*kind*/) noexcept {
  return transport::Opcode::kRead;
}
[[nodiscard]] constexpr transport::Opcode opcode_of(const WritePair* /*kind*/) noexcept {
  return transport::Opcode::kWrite;
}
[[nodiscard]] constexpr transport::Opcode opcode_of(const FetchAddPair* /*kind*/) noexcept {
  return transport::Opcode::kFetchAdd;
}
[[nodiscard]] constexpr transport::Opcode opcode_of(const CompareSwapPair* /*kind*/) noexcept {
  return transport::Opcode::kCompareSwap;
}
template <typename Pair>
inline constexpr transport::Opcode kOpcodeOf = opcode_of(static_cast<const Pair*>(nullptr));

/// The local memory of a pair, if the engine knows it; null for an atomic.
[[nodiscard, gnu::always_inline]] inline LocalMemory* memory_of(const ReadPair& pair) noexcept {
  return pair.into.memory();
}
[[nodiscard, gnu::always_inline]] inline LocalMemory* memory_of(const WritePair& pair) noexcept {
  return pair.from.memory();
}
[[nodiscard]] inline LocalMemory* memory_of(const FetchAddPair& /*pair*/) noexcept {
  return nullptr;
}
[[nodiscard]] inline LocalMemory* memory_of(const CompareSwapPair& /*pair*/) noexcept {
  return nullptr;
}

/// Destination of the old value of a pair; null for a transfer.
[[nodiscard]] inline std::uint64_t* before_of(const ReadPair& /*pair*/) noexcept { return nullptr; }
[[nodiscard]] inline std::uint64_t* before_of(const WritePair& /*pair*/) noexcept {
  return nullptr;
}
[[nodiscard]] inline std::uint64_t* before_of(FetchAddPair& pair) noexcept { return &pair.before; }
[[nodiscard]] inline std::uint64_t* before_of(CompareSwapPair& pair) noexcept {
  return &pair.before;
}

/// `error` with a subject that names the region and the index of the pair.
[[nodiscard, gnu::cold]] Error of_pair(const Error& error, const std::string& region_name,
                                       std::size_t index) noexcept;

/// The bytes of a transfer.
struct PairBytes {
  std::uint64_t offset_bytes;  ///< in the region
  std::byte* local;            ///< a write only reads these bytes
  std::size_t length_bytes;
};
[[nodiscard, gnu::always_inline]] inline PairBytes bytes_of(const ReadPair& pair) noexcept {
  const std::span<std::byte> bytes = pair.into.bytes();
  return {pair.from.bytes, bytes.data(), bytes.size()};
}
[[nodiscard, gnu::always_inline]] inline PairBytes bytes_of(const WritePair& pair) noexcept {
  const std::span<const std::byte> bytes = pair.from.bytes();
  // A record has one pointer for both directions.
  return {pair.to.bytes, const_cast<std::byte*>(bytes.data()), bytes.size()};
}

/// Fills in the members that check() needs, except the local memory: see memory_of().
template <typename Transfer>
[[gnu::always_inline]] inline void fill_pair(OperationRecord& operation,
                                             const Transfer& pair) noexcept {
  const PairBytes bytes = bytes_of(pair);
  operation.request.opcode = kOpcodeOf<Transfer>;
  operation.request.local = bytes.local;
  operation.offset_bytes = bytes.offset_bytes;
  operation.length_bytes = bytes.length_bytes;
}
inline void fill_pair(OperationRecord& operation, const FetchAddPair& pair) noexcept {
  operation.request = transport::WorkRequest::fetch_add(pair.delta);
  operation.offset_bytes = pair.at.bytes;
  operation.length_bytes = sizeof(std::uint64_t);
}
inline void fill_pair(OperationRecord& operation, const CompareSwapPair& pair) noexcept {
  operation.request = transport::WorkRequest::compare_swap(pair.expected, pair.desired);
  operation.offset_bytes = pair.at.bytes;
  operation.length_bytes = sizeof(std::uint64_t);
}

}  // namespace remora::detail
