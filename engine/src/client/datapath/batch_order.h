#pragma once

/// Brings neighbours of a batch together: a lane makes one request of those that follow each other,
/// and mapped memory is fetched ahead. Operations that are handed over together are unordered, so
/// any order will do.
///
/// Most batches have no neighbours. Those are left as they are after a look at the first few.

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "client/datapath/lane_driver.h"
#include "client/datapath/operation.h"

namespace remora::detail {

/// Operations are joined up to so many bytes: longer requests cost no less a byte, and all of one
/// complete together.
inline constexpr std::uint32_t kMaxJoinedBytes = std::uint32_t{64} << 10U;

/// Belongs to one queue, and is used by one thread at a time.
class BatchOrder {
 public:
  /// Below so many operations the look costs about what it could save.
  static constexpr std::size_t kFromOperations = 32;

  /// For batches of up to `depth` operations that go to `lane`, which is only asked now. Allocates
  /// all that it ever needs. Throws what std::vector throws.
  BatchOrder(const LaneDriver& lane, std::size_t depth);

  /// What may be joined comes first, by address; all others follow in their order. Leaves a batch
  /// alone that is short, in order, whose blocks are too far apart to be neighbours, or that the
  /// lane gains nothing by.
  void arrange(OperationList& operations) noexcept {
    if (operations.count >= kFromOperations && operations.count <= places_.size())
      arrange_long(operations);
  }

 private:
  struct Place {
    std::uint64_t key;
    OperationRecord* operation;
  };
  /// Operations that could be joined if they were neighbours remotely: they are locally, too.
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
  /// More kinds than this in one batch: it is likelier that none of them has neighbours.
  static constexpr std::size_t kMaxGroups = 8;

  void arrange_long(OperationList& operations) noexcept;
  [[nodiscard]] bool promising(const OperationList& operations) const noexcept;
  bool look(const OperationList& operations) noexcept;
  [[nodiscard]] bool joinable(const OperationRecord& operation) const noexcept;
  std::size_t group_of(const transport::WorkRequest& request, const LocalMemory* memory,
                       std::size_t likely) noexcept;
  [[nodiscard]] static bool close(const Group& group, std::size_t seen, std::size_t count) noexcept;
  [[nodiscard]] bool worth_it(std::size_t seen, std::size_t count) const noexcept;
  unsigned make_keys(std::size_t count) noexcept;
  const Place* sort(std::size_t count, unsigned bits) noexcept;

  bool needs_keys_;
  std::uint64_t bytes_least_ = 0;
  std::uint32_t bytes_most_;  ///< of an operation that may have a neighbour in its request
  std::vector<Place> places_;
  std::vector<Place> sorted_;
  std::array<Group, kMaxGroups> groups_{};
  std::size_t group_count_ = 0;
};

}  // namespace remora::detail
