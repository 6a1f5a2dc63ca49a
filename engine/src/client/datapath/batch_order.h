#pragma once

/// Reorders a batch so that operations on neighbouring blocks follow each other. A lane then sends
/// neighbours as one request, and over mapped memory the processor prefetches them. The operations
/// of one submission are unordered, so any order is allowed.
///
/// Most batches have no neighbours. BatchOrder sees that from the first operations of a batch, and
/// leaves it unchanged.

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "client/datapath/lane_driver.h"
#include "client/datapath/operation_list.h"
#include "client/datapath/operation_record.h"

namespace remora::detail {

/// Operations are joined into requests of at most this many bytes: a longer request costs no less
/// per byte, and all its operations complete only together.
inline constexpr std::uint32_t kMaxJoinedBytes = std::uint32_t{64} << 10U;

/// Reorders the batches of one queue, which owns it. One thread at a time.
class BatchOrder {
 public:
  /// Batches of fewer operations are not reordered: the search for neighbours costs about as much
  /// as it could save.
  static constexpr std::size_t kFromOperations = 32;

  /// For batches of up to `depth` operations that go to `lane`, whose limits are read only here.
  /// Allocates all memory that the object needs. Throws std::bad_alloc.
  BatchOrder(const LaneDriver& lane, std::size_t depth);

  /// Moves operations that may be joined to the front, sorted by address; the others follow in
  /// their order. Does nothing if the batch is short or already in order, if its blocks are too far
  /// apart to be neighbours, or if the lane gains nothing from the order.
  void arrange(OperationList& operations) noexcept {
    if (operations.count >= kFromOperations && operations.count <= places_.size() &&
        !is_scattered(*operations.first))
      arrange_long(operations);
  }
  /// Whether arrange() may change the order. Reads only the requests of the operations.
  [[nodiscard]] bool may_arrange(const OperationList& operations) const noexcept {
    return operations.count >= kFromOperations && operations.count <= places_.size() &&
           !is_scattered(*operations.first) && may_gain(operations);
  }

 private:
  struct Place {
    std::uint64_t key;
    OperationRecord* operation;
  };
  /// Operations with the same opcode, key, memory and distance from remote to local addresses. Two
  /// of them that are neighbours in the region are neighbours in local memory, too, so they can be
  /// joined.
  struct Group {
    std::uint64_t distance = 0;  ///< from remote to local addresses
    const LocalMemory* memory = nullptr;
    std::uint32_t remote_key = 0;
    transport::Opcode opcode = transport::Opcode::kRead;
    std::size_t count = 0;
    std::uint64_t lowest = 0;
    std::uint64_t end = 0;
    std::uint64_t sum_bytes = 0;
    std::uint64_t differing = 0;  ///< bits in which addresses differ
  };
  /// If a batch has more groups than this, probably none of them has neighbours.
  static constexpr std::size_t kMaxGroups = 8;

  [[nodiscard]] static std::uint64_t distance_of(const OperationRecord& operation) noexcept {
    return reinterpret_cast<std::uintptr_t>(operation.request.local) -
           operation.request.remote_address;
  }
  /// Whether the first three operations have three distances from remote to local addresses: more
  /// than may_gain() admits. Most batches end here, at a fraction of its cost.
  [[nodiscard, gnu::always_inline]] static bool is_scattered(
      const OperationRecord& first) noexcept {
    const std::uint64_t one = distance_of(first);
    const std::uint64_t two = distance_of(*first.next);
    if (one == two) return false;
    const std::uint64_t three = distance_of(*first.next->next);
    return three != one && three != two;
  }
  void arrange_long(OperationList& operations) noexcept;
  [[nodiscard]] bool may_gain(const OperationList& operations) const noexcept;
  bool find_groups(const OperationList& operations) noexcept;
  [[nodiscard]] bool joinable(const OperationRecord& operation) const noexcept;
  std::size_t group_of(const transport::WorkRequest& request, const LocalMemory* memory,
                       std::size_t likely) noexcept;
  [[nodiscard]] static bool may_have_neighbours(const Group& group, std::size_t seen,
                                                std::size_t count) noexcept;
  [[nodiscard]] bool gains_by_order(std::size_t seen, std::size_t count) const noexcept;
  unsigned make_keys(std::size_t count) noexcept;
  const Place* sort(std::size_t count, unsigned bits) noexcept;

  bool needs_keys_;
  std::uint64_t bytes_least_ = 0;
  std::uint32_t bytes_max_;  ///< length of the longest operation that is joined with a neighbour
  std::vector<Place> places_;
  std::vector<Place> sorted_;
  std::array<Group, kMaxGroups> groups_{};
  std::size_t group_count_ = 0;
};

}  // namespace remora::detail
