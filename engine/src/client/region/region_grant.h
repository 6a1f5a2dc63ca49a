#pragma once

/// A grant: the right of a session to a region, and the checks of each operation.

#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <remora/assert.h>
#include <remora/engine/region.h>
#include <remora/engine/uri.h>
#include <remora/mutex.h>
#include <remora/result.h>

#include "base/clock.h"
#include "client/datapath/lane_driver.h"
#include "client/datapath/local_memory.h"
#include "client/datapath/operation_record.h"
#include "client/datapath/revocable_grant.h"
#include "client/region/extent_index.h"
#include "client/region/region_async_queue.h"
#include "client/session/opening.h"
#include "transport/client_endpoint.h"
#include "transport/wire_extent.h"
#include "transport/work_request.h"

namespace remora::detail {

class RegionOpener;
class RevocationListener;
class SessionCore;

using transport::right_for;

/// The byte offset of a block. If the region has no such block, the offset is beyond its end.
[[nodiscard]] inline ByteOffset offset_of(Block block, const RegionInfo& info) noexcept {
  // Saturates, so that the offset is refused as out of range.
  std::uint64_t offset = 0;
  if (__builtin_mul_overflow(block.index, info.block_bytes, &offset))
    return ByteOffset{std::numeric_limits<std::uint64_t>::max()};
  return ByteOffset{offset};
}

/// A grant of a client on a region, with what the data path checks of each operation. exception:
/// `Quick` has copies of members, which the data path reads without following a pointer.
class RegionGrant final : public RevocableGrant {
 public:
  /// Asks the server of `session` for a grant. Blocks until the server has answered, or until
  /// `deadline`. Errors: those of SessionCore::open(); kConnectionLost: the connection was lost
  /// meanwhile.
  static Result<std::shared_ptr<RegionGrant>> open(std::shared_ptr<SessionCore> session,
                                                   const std::string& name, Rights rights,
                                                   std::string transport_reason, Deadline deadline,
                                                   Opening how = Opening::kOpen);
  RegionGrant(std::shared_ptr<SessionCore> session, RegionInfo info, Rights rights,
              std::uint64_t grant_id, transport::AttachedGrant grant, std::string transport_reason);
  ~RegionGrant() override;
  RegionGrant(const RegionGrant&) = delete;
  RegionGrant& operator=(const RegionGrant&) = delete;

  [[nodiscard]] const RegionInfo& info() const noexcept { return info_; }
  [[nodiscard]] Rights rights() const noexcept { return rights_; }
  [[nodiscard]] const std::string& transport_reason() const noexcept { return transport_reason_; }
  [[nodiscard]] SessionCore& session() const noexcept { return *session_; }
  /// `error` of a call on this region, with the names of its server and the region.
  [[nodiscard, gnu::cold]] Error named(const Error& error) const noexcept;
  /// The Error of a failed operation of this region, made from the record when a caller asks for
  /// it.
  [[nodiscard, gnu::cold]] Error error_of(const OperationRecord& operation) const noexcept;
  [[nodiscard]] const std::vector<transport::WireExtent>& extents() const noexcept override {
    return grant_.extents;
  }
  [[nodiscard]] std::uint64_t grant_id() const noexcept override { return grant_id_; }
  [[nodiscard]] HeldGrant held() const override;
  /// The URI with which the region was opened, and the engine that opened it. Both are set before
  /// other threads see the grant.
  [[nodiscard]] const Uri& uri() const noexcept { return uri_; }
  [[nodiscard]] RegionOpener& opener() const noexcept {
    REMORA_ASSERT(opener_ != nullptr, "an engine that opens a region sets the region's opener");
    return *opener_;
  }
  void set_origin(Uri uri, RegionOpener& opener) {
    uri_ = std::move(uri);
    opener_ = &opener;
  }

  void revoke(Reason reason) noexcept override;
  /// Whether local memory must be registered.
  [[nodiscard]] bool needs_keys() const noexcept { return quick_.needs_keys; }
  [[nodiscard]] Reason revoked() const noexcept override {
    return revoked_.load(std::memory_order_acquire);
  }
  [[nodiscard]] bool owns(const OperationRecord& operation) const noexcept override;
  /// Registers a queue that may take operations of this grant.
  void add_queue(RevocationListener& queue);
  void remove_queue(const RevocationListener& queue) noexcept;
  [[nodiscard]] bool tell_queues() noexcept override;

  /// The queue of Region::async() for coroutines outside of an Executor.
  [[nodiscard]] RegionAsyncQueue& async_queue() noexcept { return async_queue_; }

  /// Prepares a transfer for the lane, or refuses a wrong one. `operation` has opcode, local
  /// memory, length and offset; this function sets the rest of its request, or its outcome. True:
  /// it may be submitted.
  [[gnu::always_inline]] bool check(OperationRecord& operation) const noexcept {
    return admits(operation) || check_closely(operation);
  }
  /// The quick check: true for nearly all valid transfers that lie in one extent, and for no
  /// invalid operation. Gives the result of check_closely() at lower cost.
  template <std::size_t kWords = 0>
  [[gnu::always_inline]] bool admits(OperationRecord& operation) const noexcept {
    // Regions of several extents, too, take this way: those of one extent have no instruction more.
    if (!has_length_below(quick_.one_extent_bytes_max, operation)) [[unlikely]]
      return admits_in_extent<kWords>(operation);
    if (!fits_besides<kWords>(operation)) return false;
    operation.request.length_bytes = static_cast<std::uint32_t>(operation.length_bytes);
    operation.request.remote_address = quick_.remote_address + operation.offset_bytes;
    operation.request.remote_key = quick_.remote_key;
    operation.whole = true;
    return true;
  }
  /// The transfers of one opcode that pass the check. All others are for check().
  struct Transfers {
    std::uint64_t size_bytes;  ///< of the region
    std::uint64_t bytes_max;   ///< of one transfer; 0: no transfer passes

    /// Whether a transfer of this length passes if it lies within the region.
    [[nodiscard, gnu::always_inline]] bool admits_length(std::size_t length_bytes) const noexcept {
      return length_bytes - 1 < bytes_max;  // 0 is refused, too
    }
    [[nodiscard, gnu::always_inline]] bool admits(std::uint64_t offset_bytes,
                                                  const std::byte* local,
                                                  std::size_t length_bytes) const noexcept {
      return admits_length(length_bytes) && offset_bytes <= size_bytes - length_bytes &&
             local != nullptr;
    }
  };
  struct MappedBytes : Transfers {
    std::byte* address;
  };
  /// The quick check of many transfers with the same local memory, and what their requests share.
  struct RequestBytes : Transfers {
    std::uint64_t remote_address;  ///< of the region's first byte
    std::uint32_t remote_key;
    std::uint32_t local_key;
  };
  /// The bytes of the region, if the session maps memory. A copy needs a MappedAccess, and a check
  /// of revoked() after that.
  [[nodiscard]] MappedBytes mapped_bytes(transport::Opcode opcode) const noexcept {
    return {{quick_.size_bytes, quick_.one_extent_bytes_max[static_cast<std::size_t>(opcode)]},
            std::bit_cast<std::byte*>(quick_.remote_address)};
  }
  /// The transfers of `memory` that admits() would let pass. Null: memory that is not registered.
  [[nodiscard]] RequestBytes request_bytes(transport::Opcode opcode,
                                           const LocalMemory* memory) const noexcept {
    RequestBytes bytes{
        {quick_.size_bytes, quick_.one_extent_bytes_max[static_cast<std::size_t>(opcode)]},
        quick_.remote_address,
        quick_.remote_key,
        0};
    // As in fits_besides().
    const std::size_t domain = quick_.domain();
    if (memory != nullptr) {
      const std::uint64_t key_word = memory->key_word(domain);
      if (key_word == 0) bytes.bytes_max = 0;
      bytes.local_key = static_cast<std::uint32_t>(key_word);
    } else if (domain != kNoMemoryDomain) {
      bytes.bytes_max = 0;
    }
    return bytes;
  }
  /// As check(), for an operation that goes to `lane`: also refuses an atomic if the lane does not
  /// lead to the device of the region's atomics.
  bool check_on(OperationRecord& operation, const LaneDriver& lane) const noexcept {
    return check(operation) && (rail_device_ == 0 || check_atomic_on(operation, lane));
  }
  /// As above, for a constant opcode.
  template <transport::Opcode kOpcode>
  [[gnu::always_inline]] bool check_on(OperationRecord& operation,
                                       const LaneDriver& lane) const noexcept {
    if constexpr (transport::is_transfer(kOpcode))
      return check(operation);
    else
      return check_on(operation, lane);
  }
  /// Whether atomics of this region may use `lane`.
  [[nodiscard]] bool atomics_go_by(const LaneDriver& lane) const noexcept {
    return rail_device_ == 0 || lane.server_device() == rail_device_;
  }
  /// The lane for one more queue that will take operations of this region.
  [[nodiscard]] LaneDriver& lane_for_queue() const noexcept;
  /// As check(), for a transfer in pieces, which are borrowed until it has completed. Also sets the
  /// length.
  bool check(OperationRecord& operation, std::span<const Target> pieces) const noexcept;
  bool check(OperationRecord& operation, std::span<const Source> pieces) const noexcept;
  /// Makes the server notify its application of a write that has passed its check.
  void add_notice(OperationRecord& operation, std::uint32_t tag) const noexcept {
    if (operation.whole) make_split(operation, grant_.extents);
    operation.notice = {.grant_id = grant_id_,
                        .offset_bytes = operation.offset_bytes,
                        .length_bytes = operation.length_bytes,
                        .tag = tag};
  }
  /// Checks a synchronous transfer and, if it is valid, carries it out.
  [[gnu::always_inline]] void run_transfer(OperationRecord& operation,
                                           std::chrono::nanoseconds deadline) const noexcept {
    if (admits<kAloneWords>(operation)) [[likely]]
      run(operation, deadline);
    else
      run_counted(operation, deadline);
  }
  /// As run_transfer(), for an operation that admits() refuses, also on memory with handles.
  [[gnu::noinline]] void run_counted(OperationRecord& operation,
                                     std::chrono::nanoseconds deadline) const noexcept;
  /// Submits an operation that has passed its check, and waits for it.
  void run(OperationRecord& operation, std::chrono::nanoseconds deadline) const noexcept;
  /// Checks and carries out an operation without local memory. Returns the old value of an atomic.
  Result<std::uint64_t> run_alone(const transport::WorkRequest& request, ByteOffset at,
                                  std::uint64_t length_bytes,
                                  std::chrono::nanoseconds deadline) const noexcept;

 private:
  /// The largest length of a request, for each Opcode; 0: the opcode moves no bytes, or the grant
  /// lacks the right.
  using BytesMax = std::array<std::uint64_t, transport::kOpcodes>;
  /// Whether the operation's length is none that is refused: 0, which a part outside of known
  /// memory has, too, or more than `bytes_max` has for its opcode.
  [[nodiscard, gnu::always_inline]] static bool has_length_below(
      const BytesMax& bytes_max, const OperationRecord& operation) noexcept {
    return operation.length_bytes - 1 <
           bytes_max[static_cast<std::size_t>(operation.request.opcode)];
  }
  /// Whether the operation, whose length has passed has_length_below(), is valid; if it is, sets
  /// its local key.
  template <std::size_t kWords = 0>
  [[gnu::always_inline]] bool fits_besides(OperationRecord& operation) const noexcept {
    // Also refuses an offset beyond the region's size less the length.
    if (operation.offset_bytes > quick_.size_bytes - operation.length_bytes) return false;
    // No operation of a revoked grant passes, since revoke() changes the domain.
    if (operation.memory != nullptr) [[likely]] {
      const std::uint64_t key_word = operation.memory->key_word(quick_.domain() + kWords);
      if (key_word == 0) return false;
      operation.request.local_key = static_cast<std::uint32_t>(key_word);
    } else if (quick_.domain() != kNoMemoryDomain || operation.request.local == nullptr) {
      return false;
    }
    operation.outcome = {};
    return true;
  }
  /// As admits(), for a region of several extents: 12 instructions more. In a region of one
  /// extent, no length that admits() refuses passes here.
  template <std::size_t kWords>
  [[gnu::always_inline]] bool admits_in_extent(OperationRecord& operation) const noexcept {
    return has_length_below(quick_.bytes_max, operation) && fits_besides<kWords>(operation) &&
           make_whole_by_index(operation);
  }
  /// As make_whole(), for an operation that extent_index_ finds.
  [[gnu::always_inline]] bool make_whole_by_index(OperationRecord& operation) const noexcept {
    const auto* const part = extent_index_.find(operation.offset_bytes, operation.length_bytes);
    if (part == nullptr) return false;
    operation.request.length_bytes = static_cast<std::uint32_t>(operation.length_bytes);
    operation.request.remote_address = part->base_address + operation.offset_bytes;
    operation.request.remote_key = part->remote_key;
    operation.whole = true;
    return true;
  }
  [[nodiscard]] bool make_whole_here(OperationRecord& operation) const noexcept;
  bool check_closely(OperationRecord& operation) const noexcept;
  bool check_atomic_on(OperationRecord& operation, const LaneDriver& lane) const noexcept;
  [[nodiscard]] bool has_atomics_here() const noexcept;
  void run_on_rails(OperationRecord& operation) const noexcept;
  void run_closely(OperationRecord& operation) const noexcept;
  [[gnu::noinline, gnu::cold]] void end_revoked(OperationRecord& operation,
                                                Reason why) const noexcept;
  template <typename Piece>
  bool check_pieces(OperationRecord& operation, std::span<const Piece> pieces) const noexcept;
  bool count_refused(OperationRecord& operation) const noexcept;
  Outcome admit_memory(LocalMemory* memory) const noexcept;
  [[nodiscard]] Outcome judge(const OperationRecord& operation) const noexcept;

  std::shared_ptr<SessionCore> session_;
  RegionInfo info_;
  Rights rights_;
  std::uint64_t grant_id_;
  transport::AttachedGrant grant_;
  std::string transport_reason_;
  Uri uri_;
  RegionOpener* opener_ = nullptr;
  bool atomics_here_;  ///< the region's atomic domain is that of this session's transport
  /// With rails: the number of the device that is the region's atomic domain; otherwise 0.
  std::uint32_t rail_device_;
  /// The values for the check of each operation, next to each other.
  struct Quick {
    std::uint64_t size_bytes;
    std::uint32_t request_bytes_max;
    std::uint32_t inline_bytes_max;
    std::size_t domain_index;  ///< revoke() changes it once, to kKeylessDomain
    bool needs_keys;
    std::uint32_t remote_key;
    std::uint64_t remote_address;
    BytesMax bytes_max;
    LaneDriver* only_lane;          ///< null: there are several lanes, or memory is mapped
    BytesMax one_extent_bytes_max;  ///< 0: the region has several extents

    [[nodiscard]] std::size_t domain() const noexcept {
      return __atomic_load_n(&domain_index, __ATOMIC_RELAXED);
    }
  };
  Quick quick_;
  ExtentIndex extent_index_;  ///< of the extents of grant_
  LaneDriver* mapped_lane_;   ///< null: memory is not mapped
  std::size_t domain_index_;  ///< does not change when the grant is revoked
  std::atomic<Reason> revoked_{Reason::kNone};
  struct QueueToTell {
    RevocationListener* queue;
    bool told;
  };
  Mutex queues_mutex_;
  std::vector<QueueToTell> queues_ REMORA_GUARDED_BY(queues_mutex_);
  RegionAsyncQueue async_queue_;
};

inline Result<std::uint64_t> RegionGrant::run_alone(
    const transport::WorkRequest& request, ByteOffset at, std::uint64_t length_bytes,
    std::chrono::nanoseconds deadline) const noexcept {
  OperationRecord operation;
  operation.request = request;
  operation.length_bytes = length_bytes;
  operation.offset_bytes = at.bytes;
  operation.memory = nullptr;
  operation.old_value = 0;  // for operations that return no value
  if (check(operation)) run(operation, deadline);
  if (operation.outcome.ok) return operation.old_value;
  return error_of(operation);
}

}  // namespace remora::detail
