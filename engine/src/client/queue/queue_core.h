#pragma once

/// The state of a Queue: a table of operations, the list of operations that are taken and not
/// submitted, and the completions that the caller has.

#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include <remora/engine/many.h>
#include <remora/engine/queue.h>

#include "base/unique_fd.h"
#include "client/datapath/batch_order.h"
#include "client/datapath/memory_releaser.h"
#include "client/datapath/operation_list.h"
#include "client/datapath/operation_record.h"
#include "client/region/region_grant.h"
#include "client/region/revocation_listener.h"

namespace remora::detail {

struct QueueEntry;

/// The part of a place that belongs to a group: the pairs of one Queue::read_many(), or of a
/// similar function. Each pair has a place. The place of the first pair, the head, has the
/// completion.
struct QueueGroup {
  QueueEntry* head = nullptr;       ///< null: the operation is in no group
  std::uint64_t* before = nullptr;  ///< destination of an atomic's old value
  ManyOutcome* outcome = nullptr;   ///< outcome of this pair, if the caller asks for it
  std::uint32_t index = 0;          ///< index of the pair

  /// In the head only:
  std::uint32_t left_count = 0;    ///< pairs that have not ended, or were not handed out
  std::uint32_t failed_index = 0;  ///< index of the first failed pair
  Ticket failed{};                 ///< the head's ticket, if a pair has failed
  Outcome failed_outcome{};
  std::uint64_t failed_offset_bytes = 0;
  std::uint64_t failed_length_bytes = 0;
};

/// A place of a queue's table: an operation, from the time when the queue takes it until the
/// application has destroyed its completion.
struct QueueEntry : OperationRecord {
  Slot slot;
  std::uint64_t tag = 0;
  Ticket ticket;  ///< of the place's operation, or of the last operation there
  /// The operation waits until all operations before it have completed. Only while it is filled or
  /// held.
  bool after_barrier = false;
  QueueGroup group;
};

/// Counts the end of a group's operation in its head; the operation then is in no group. True: it
/// was the last one, and the head has the outcome of the group.
[[nodiscard]] bool count_end_of_pair(QueueEntry& entry) noexcept;
/// `error` of an operation; for a group it names the first failed pair.
[[nodiscard]] Error error_in_group(const Error& error, const RegionGrant& region,
                                   const QueueEntry& entry) noexcept;

/// Serials of the Completions of a queue that was moved from, and of a queue that a parent process
/// made. No wait() returns them.
inline constexpr std::uint64_t kNoQueueSerial = std::numeric_limits<std::uint64_t>::max();
inline constexpr std::uint64_t kForeignQueueSerial = kNoQueueSerial - 1;

/// The error of a call while another thread is in a call: a queue has one owner.
[[nodiscard]] Error not_the_owner(Operation operation) noexcept;

/// One owner at a time. exception: each operation touches most of the members, and none may stand
/// behind another pointer (unit_engine_cost counts the instructions). For the same reason queue.cc
/// has the way of each operation for both QueueCore and Queue, whose functions take those of
/// QueueCore inline. queue_group.cc has groups of pairs, and queue_core.cc the rest.
class QueueCore final : public OperationOwner, public RevocationListener {
 public:
  /// Errors: kInvalidArgument (depth), kConnectionLost, kOutOfMemory.
  static Result<std::unique_ptr<QueueCore>> create(std::shared_ptr<RegionGrant> region,
                                                   const QueueOptions& options);
  QueueCore(std::shared_ptr<RegionGrant> region, std::size_t depth,
            std::chrono::nanoseconds deadline);
  ~QueueCore() override;
  QueueCore(const QueueCore&) = delete;
  QueueCore& operator=(const QueueCore&) = delete;

  /// A read or a write of one piece of local memory.
  struct Transfer {
    transport::Opcode opcode;
    ByteOffset offset;
    std::byte* local;
    std::size_t length_bytes;
    LocalMemory* memory;
  };
  /// `slot`, if given, is moved from, unless the queue is full.
  Ticket take(const Transfer& transfer, Slot* slot, std::uint64_t tag) noexcept;
  /// As take(), for callers outside of queue.cc.
  Ticket take_transfer(const Transfer& transfer, Slot* slot, std::uint64_t tag) noexcept;
  /// Takes an operation without local memory.
  Ticket take(const transport::WorkRequest& request, ByteOffset offset, std::uint64_t length_bytes,
              std::uint64_t tag) noexcept;
  /// Takes a transfer of the whole slot, which is moved from, unless the queue is full.
  Ticket take_slot(transport::Opcode opcode, ByteOffset offset, Slot& slot,
                   std::uint64_t tag) noexcept;
  Ticket take_notify(ByteOffset offset, const Source& from, std::uint32_t notice,
                     std::uint64_t tag) noexcept;
  template <typename Piece>
  Ticket take_pieces(transport::Opcode opcode, ByteOffset offset, std::span<const Piece> pieces,
                     std::uint64_t tag) noexcept;
  /// See Queue::read_many(). In queue_group.cc.
  template <typename Pair>
  Ticket take_group(std::span<Pair> pairs, std::span<ManyOutcome> each, std::uint64_t tag) noexcept;
  Status select(const std::shared_ptr<RegionGrant>& region) noexcept;
  Status submit() noexcept;
  void barrier() noexcept;
  Status cancel(Ticket ticket) noexcept;
  Completions wait(std::size_t at_least) noexcept;
  Result<int> event_fd() noexcept;
  Completions progress() noexcept;
  [[nodiscard]] Deadline next_deadline() const noexcept;
  [[nodiscard]] bool request_refusal() noexcept override;
  /// Ends the completions with this serial, if the caller still has them.
  void end_completions(std::uint64_t serial) noexcept;

  [[nodiscard]] Error error_of(const OperationRecord& operation) const noexcept override;
  [[nodiscard]] const QueueRoom& room() const noexcept { return room_; }
  /// Whether operations were taken whose completions were not handed out.
  [[nodiscard]] bool busy() const noexcept { return room_.left != room_.depth; }
  [[nodiscard]] ByteOffset offset_of(Block block) const noexcept {
    return detail::offset_of(block, region_->info());
  }

 private:
  enum class CallState : std::uint8_t { kIdle, kInCall, kRefuseRevoked };
  static constexpr CallState kIdle = CallState::kIdle;
  static constexpr CallState kInCall = CallState::kInCall;
  /// A call of the queue's owner, which may be about a batch of operations. False: another thread
  /// is in a call.
  class Call {
   public:
    explicit Call(QueueCore& queue) noexcept
        : in_call_{enter(queue, queue.in_call_.exchange(kInCall, std::memory_order_acquire))} {}
    ~Call() {
      if (in_call_ != nullptr) in_call_->store(kIdle, std::memory_order_release);
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    [[nodiscard]] explicit operator bool() const noexcept { return in_call_ != nullptr; }

   private:
    static std::atomic<CallState>* enter(QueueCore& queue, CallState before) noexcept {
      return before == kIdle ? &queue.in_call_ : queue.enter_unless_taken(before);
    }
    std::atomic<CallState>* in_call_;
  };
  [[gnu::noinline]] std::atomic<CallState>* enter_unless_taken(CallState before) noexcept;
  void refuse_revoked() noexcept;
  template <typename Find>
  std::size_t refuse_unposted(Find find) noexcept;
  static Completions refused() noexcept { return Completions{nullptr, {}, 0}; }
  static constexpr transport::Opcode kNoRun{0xff};
  /// The operations that are taken and not submitted. In the chain of free places, their places
  /// come first.
  struct Filled {
    OperationRecord* first;           ///< free_ itself while no place is filled
    OperationRecord* last = nullptr;  ///< only while count is not 0
    std::size_t count = 0;
    /// The opcode of the last filled operation, if another one may follow it: see
    /// OperationRecord::follows.
    transport::Opcode run_opcode = kNoRun;
    bool any_split = false;    ///< an operation is not whole
    bool any_barrier = false;  ///< there is a barrier before an operation
  };
  [[nodiscard]] bool has_room() const noexcept { return room_.left != 0; }
  [[nodiscard]] static QueueEntry* entry_of(OperationRecord* operation) noexcept {
    return static_cast<QueueEntry*>(operation);
  }
  QueueEntry& acquire(std::uint64_t tag) noexcept;
  static void fill(QueueEntry& entry, const Transfer& transfer) noexcept;
  [[gnu::noinline]] Ticket take_after_full_check(Slot* slot, std::uint64_t tag) noexcept;
  Ticket append(QueueEntry& entry, bool sound) noexcept;
  [[nodiscard]] OperationList detach_filled() noexcept;
  void attach_filled(OperationList filled) noexcept;
  void hand_out(OperationRecord& first, std::size_t count) noexcept;
  void collect_ended() noexcept;
  // Only while there are groups; in queue_group.cc:
  [[gnu::noinline]] void hand_out_grouped(OperationRecord& first, std::size_t count) noexcept;
  [[gnu::noinline]] void wait_for_groups(std::size_t at_least) noexcept;
  void end_of_pair(QueueEntry& entry) noexcept;
  void make_ready(QueueEntry& entry, bool ok) noexcept;
  bool acquire_leases(OperationList& filled) noexcept;
  void hand_over(OperationList& operations) noexcept;
  void hand_over_held() noexcept;
  void put_barrier_before(OperationRecord* operation) noexcept;
  Completions hand_out_all() noexcept;
  void refuse(OperationRecord& operation, const Outcome& outcome) noexcept;
  void keep_refused(OperationRecord& operation) noexcept;
  [[nodiscard]] Deadline earliest_deadline() const noexcept;

  QueueRoom room_;
  RegionGrant* region_;  ///< the region of operations that are taken from now on
  LaneDriver& lane_;     ///< the lane of all operations of the queue
  /// All regions that were selected.
  std::unordered_map<const RegionGrant*, std::shared_ptr<RegionGrant>> regions_;
  std::chrono::nanoseconds deadline_;
  /// Twice the depth, since completions that the caller still has do not count against the depth.
  std::vector<QueueEntry> table_;
  MemoryReleaser::Table memory_named_;  ///< names the memory of the places of table_
  /// The free places, chained by `next`, behind those of filled_: taking a place moves this pointer
  /// to the next one.
  OperationRecord* free_;
  Filled filled_;
  /// A slot was taken at some time, so completions may have slots to give back.
  bool any_slots_ = false;
  std::size_t group_count_ = 0;  ///< groups that were not handed out
  std::size_t in_flight_ = 0;    ///< operations that are submitted and not taken out of the sink
  OperationList held_;           ///< operations that are submitted and wait behind a barrier
  /// Ended without a lane: invalid, cancelled, or expired behind a barrier.
  OperationList refused_;
  bool barrier_ = false;  ///< there is a barrier behind the operation that was taken last
  BatchOrder order_;
  std::vector<CompletionSink::Run> ring_;
  CompletionSink sink_;
  mutable Deadline earliest_;  ///< no operation in flight has an earlier deadline
  EventNotifier event_;        ///< notified by a thread that completes an operation
  UniqueFd epoll_;             ///< over event_ and the lane's descriptor
  /// Completions that the caller has, also chained by `next`.
  std::unique_ptr<Completion[]> ready_;
  std::size_t ready_count_ = 0;
  std::uint64_t serial_ = 0;
  std::atomic<CallState> in_call_{CallState::kIdle};
};

}  // namespace remora::detail
