#pragma once

/// The memory that the lanes of a tcp session may reach, by key.

#include <cstddef>
#include <cstdint>
#include <vector>

#include <remora/engine/types.h>
#include <remora/error_code.h>
#include <remora/result.h>

#include "transport/tcp/wire.h"

namespace remora::transport::tcp {

/// A range of memory that was granted to a session.
struct GrantedExtent {
  std::byte* memory = nullptr;
  std::uint64_t start_bytes = 0;  ///< the address of its first byte: its offset in the region
  std::uint64_t length_bytes = 0;
  Rights rights = Rights::kNone;
  bool cpu_atomics = false;
};

/// The extents of one session by key. A key is the index of a slot (20 bits) and the slot's
/// generation (12 bits, from a random one on), so that the key of an ended grant is not soon
/// reused. The table has no memory of other sessions: no key reaches it.
class GrantTable {
 public:
  static constexpr unsigned kGenerationBits = 12;
  static constexpr std::size_t kMaxExtents = std::size_t{1} << (32 - kGenerationBits);

  /// Errors: kLimitExceeded (kMaxExtents).
  Result<std::uint32_t> add(const GrantedExtent& extent);
  /// The number of slots that add_as() reaches. Without a limit a client could name a high slot,
  /// and the table would allocate all slots below it.
  static constexpr std::size_t kMaxNamedExtents = std::size_t{1} << 16U;
  /// As add(), under a key that the client has from the previous process. Errors: kInvalidArgument:
  /// an extent of this session has its slot; kLimitExceeded (kMaxNamedExtents).
  Status add_as(std::uint32_t key, const GrantedExtent& extent);
  void remove(std::uint32_t key) noexcept;
  [[nodiscard]] std::size_t size() const noexcept { return slots_.size() - free_.size(); }

  /// The memory of a request, or the reason why it is refused.
  struct Target {
    CompletionStatus status = CompletionStatus::kSuccess;
    std::byte* memory = nullptr;
  };
  [[nodiscard]] Target resolve(const RequestHeader& request) const noexcept;
  /// The memory of that range, without a check of rights; null if it is outside of every extent.
  [[nodiscard]] std::byte* locate(std::uint32_t key, std::uint64_t address,
                                  std::uint32_t length_bytes) const noexcept {
    const std::size_t index = key >> kGenerationBits;
    if (index >= slots_.size() || !slots_[index].used || slots_[index].key != key) return nullptr;
    const GrantedExtent& extent = slots_[index].extent;
    if (address < extent.start_bytes) return nullptr;
    const std::uint64_t into = address - extent.start_bytes;
    if (into > extent.length_bytes || length_bytes > extent.length_bytes - into) return nullptr;
    return extent.memory + into;
  }

 private:
  struct Slot {
    GrantedExtent extent;
    std::uint32_t key = 0;
    bool used = false;
  };
  void add_slot();

  std::vector<Slot> slots_;
  std::vector<std::uint32_t> free_;
};

}  // namespace remora::transport::tcp
