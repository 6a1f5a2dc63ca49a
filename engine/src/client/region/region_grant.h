#pragma once

/// One grant: the right of one session to one region, and the checks that each operation passes.

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
#include "client/datapath/operation.h"
#include "client/datapath/revocable_grant.h"
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

/// The byte offset of a block; beyond any region's end when the region has no such block.
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
  /// Asks the server of `session` for a grant. Blocks until the server has answered, or `deadline`.
  /// Errors: those of SessionCore::open(); kConnectionLost: the connection was lost meanwhile.
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
  /// The error of a call on this region: `error` names its server and the region.
  [[nodiscard, gnu::cold]] Error named(const Error& error) const noexcept;
  /// The Error of an operation of this region that has failed. Made when a caller asks for it: the
  /// record has the numbers.
  [[nodiscard, gnu::cold]] Error error_of(const OperationRecord& operation) const noexcept;
  [[nodiscard]] const std::vector<transport::WireExtent>& extents() const noexcept override {
    return grant_.extents;
  }
  [[nodiscard]] std::uint64_t grant_id() const noexcept override { return grant_id_; }
  [[nodiscard]] HeldGrant held() const override;
  /// The URI with which the region was opened, and the engine that has opened it. Both are set
  /// before the grant is shared.
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
  /// Local memory must be registered.
  [[nodiscard]] bool needs_keys() const noexcept { return quick_.needs_keys; }
  [[nodiscard]] Reason revoked() const noexcept override {
    return revoked_.load(std::memory_order_acquire);
  }
  [[nodiscard]] bool owns(const OperationRecord& operation) const noexcept override;
  /// Registers a queue that may have taken operations of this grant.
  void add_queue(RevocationListener& queue);
  void remove_queue(const RevocationListener& queue) noexcept;
  [[nodiscard]] bool tell_queues() noexcept override;

  /// The queue of Region::async() where no Executor runs.
  [[nodiscard]] RegionAsyncQueue& async_queue() noexcept { return async_queue_; }

  /// Makes a transfer ready for the lane, or refuses misuse. `operation` has opcode, local memory,
  /// length and offset; this sets the rest of its request, or its outcome. True: it may be
  /// submitted.
  [[gnu::always_inline]] bool check(OperationRecord& operation) const noexcept {
    return admits(operation) || check_closely(operation);
  }
  /// True for nearly every sound transfer of a region in one extent, and for no other operation:
  /// the result of check_closely(), at less cost.
  template <std::size_t kWords = 0>
  [[gnu::always_inline]] bool admits(OperationRecord& operation) const noexcept {
    if (!fits<kWords>(operation, quick_.one_extent_bytes_max)) return false;
    operation.request.length_bytes = static_cast<std::uint32_t>(operation.length_bytes);
    operation.request.remote_address = quick_.remote_address + operation.offset_bytes;
    operation.request.remote_key = quick_.remote_key;
    operation.whole = true;
    return true;
  }
  /// Mapped bytes, and which transfers of them pass their check. Those that do not are for check().
  struct MappedBytes {
    std::byte* address;
    std::uint64_t size_bytes;
    std::uint64_t bytes_max;  ///< of one transfer; 0: none passes

    [[nodiscard, gnu::always_inline]] bool admits(std::uint64_t offset_bytes,
                                                  const std::byte* local,
                                                  std::size_t length_bytes) const noexcept {
      return length_bytes - 1 < bytes_max && offset_bytes <= size_bytes - length_bytes &&
             local != nullptr;
    }
  };
  /// The bytes of the region. Only where the session maps memory. A copy needs a MappedAccess, and
  /// revoked() after that.
  [[nodiscard]] MappedBytes mapped_bytes(transport::Opcode opcode) const noexcept {
    return {.address = std::bit_cast<std::byte*>(quick_.remote_address),
            .size_bytes = quick_.size_bytes,
            .bytes_max = quick_.one_extent_bytes_max[static_cast<std::size_t>(opcode)]};
  }
  /// As check() for an operation that goes to `lane`: refuses an atomic there if the lane does not
  /// lead to the device of the region's atomics.
  bool check_on(OperationRecord& operation, const LaneDriver& lane) const noexcept {
    return check(operation) && (rail_device_ == 0 || check_atomic_on(operation, lane));
  }
  /// The same where the opcode is known.
  template <transport::Opcode kOpcode>
  [[gnu::always_inline]] bool check_on(OperationRecord& operation,
                                       const LaneDriver& lane) const noexcept {
    if constexpr (transport::is_transfer(kOpcode))
      return check(operation);
    else
      return check_on(operation, lane);
  }
  /// False: atomics of this region go by another lane.
  [[nodiscard]] bool atomics_go_by(const LaneDriver& lane) const noexcept {
    return rail_device_ == 0 || lane.server_device() == rail_device_;
  }
  /// The lane for one more queue that is to take operations of this region.
  [[nodiscard]] LaneDriver& lane_for_queue() const noexcept;
  /// As check() for a transfer in pieces, which are borrowed until it has completed. Fills in the
  /// length.
  bool check(OperationRecord& operation, std::span<const Target> pieces) const noexcept;
  bool check(OperationRecord& operation, std::span<const Source> pieces) const noexcept;
  /// Has the server tell its application of a write that has passed its check.
  void add_notice(OperationRecord& operation, std::uint32_t tag) const noexcept {
    if (operation.whole) make_split(operation, grant_.extents);
    operation.notice_grant = grant_id_;
    operation.notice_tag = tag;
  }
  /// Checks one synchronous transfer and, if it is sound, carries it out.
  [[gnu::always_inline]] void run_transfer(OperationRecord& operation,
                                           std::chrono::nanoseconds deadline) const noexcept {
    if (admits<kAloneWords>(operation)) [[likely]]
      run(operation, deadline);
    else
      run_counted(operation, deadline);
  }
  /// The same for an operation that admits() refuses, also one on memory with handles.
  [[gnu::noinline]] void run_counted(OperationRecord& operation,
                                     std::chrono::nanoseconds deadline) const noexcept;
  /// Submits one operation that passed its check, and waits for it.
  void run(OperationRecord& operation, std::chrono::nanoseconds deadline) const noexcept;
  /// Checks and runs one operation without local memory. Returns the old value of an atomic.
  Result<std::uint64_t> run_alone(const transport::WorkRequest& request, ByteOffset at,
                                  std::uint64_t length_bytes,
                                  std::chrono::nanoseconds deadline) const noexcept;

 private:
  /// The most bytes of one request, for each Opcode; 0 where it moves no bytes or has no right.
  using BytesMax = std::array<std::uint64_t, transport::kOpcodes>;
  /// True: the operation is sound, and has its local key.
  template <std::size_t kWords = 0>
  [[gnu::always_inline]] bool fits(OperationRecord& operation,
                                   const BytesMax& bytes_max) const noexcept {
    const std::uint64_t length_bytes = operation.length_bytes;
    // Refuses a length of 0, which a part outside of known memory has too, and an offset beyond the
    // region's size less the length.
    if (length_bytes - 1 >= bytes_max[static_cast<std::size_t>(operation.request.opcode)] ||
        operation.offset_bytes > quick_.size_bytes - length_bytes)
      return false;
    // No operation of a revoked grant fits: revoke() changes the domain.
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
  bool atomics_here_;  ///< the region's atomic domain is the one of this session's transport
  /// With rails: the number of the device that is the region's atomic domain; else 0.
  std::uint32_t rail_device_;
  /// The values that every operation is checked against, in one place.
  struct Quick {
    std::uint64_t size_bytes;
    std::uint32_t request_bytes_max;
    std::uint32_t inline_bytes_max;
    std::size_t domain_index;  ///< changes once: kKeylessDomain once the grant is revoked
    bool needs_keys;
    std::uint32_t remote_key;
    std::uint64_t remote_address;
    BytesMax bytes_max;
    LaneDriver* only_lane;          ///< null: there are several, or memory is mapped
    BytesMax one_extent_bytes_max;  ///< 0 if the region has several extents

    [[nodiscard]] std::size_t domain() const noexcept {
      return __atomic_load_n(&domain_index, __ATOMIC_RELAXED);
    }
  };
  Quick quick_;
  LaneDriver* mapped_lane_;   ///< null: memory is not mapped
  std::size_t domain_index_;  ///< stays the same when the grant is revoked
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
  operation.old_value = 0;  // for an operation that returns none
  if (check(operation)) run(operation, deadline);
  if (operation.outcome.ok) return operation.old_value;
  return error_of(operation);
}

}  // namespace remora::detail
