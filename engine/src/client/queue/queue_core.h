#pragma once

/// The state of a Queue: a table of operations, the list of those that are taken and not submitted,
/// and the completions that the caller has.

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
#include "client/datapath/operation.h"
#include "client/region/region_grant.h"
#include "client/region/revocation_listener.h"

namespace remora::detail {

struct QueueEntry;

/// What a place of a queue's table has of a group: the pairs of one Queue::read_many(), or of its
/// neighbours. Each pair has a place; the place of the first one, the head, has the completion.
struct QueueGroup {
  QueueEntry* head = nullptr;       ///< null: the operation is of no group
  std::uint64_t* before = nullptr;  ///< where the old value of an atomic goes
  ManyOutcome* outcome = nullptr;   ///< of this pair, where the caller wants it
  std::uint32_t index = 0;          ///< of the pair

  /// In the head only.
  std::uint32_t left_count = 0;    ///< pairs that have not ended, or are not handed out
  std::uint32_t failed_index = 0;  ///< of the failed pair that stands first
  Ticket failed{};                 ///< the head's ticket, once a pair has failed
  Outcome failed_outcome{};
  std::uint64_t failed_offset_bytes = 0;
  std::uint64_t failed_length_bytes = 0;
};

/// One place of a queue's table: an operation, from when the queue takes it until its completion
/// has ended.
struct QueueEntry : OperationRecord {
  Slot slot;
  std::uint64_t tag = 0;
  Ticket ticket;  ///< of the place's operation, or of its last one
  /// The operation waits until all before it have completed. Only while it is filled or held.
  bool after_barrier = false;
  QueueGroup group;
};

/// Notes in its head how an operation of a group has ended, which then is of no group any more.
/// True: it was the last one, and the head has the outcome of the group.
[[nodiscard]] bool count_end_of_pair(QueueEntry& entry) noexcept;
/// `error` of an operation; of a group's it names the failed pair that stands first.
[[nodiscard]] Error error_in_group(const Error& error, const RegionGrant& region,
                                   const QueueEntry& entry) noexcept;

/// Serials of the Completions of a queue that was moved from, and of a queue that a parent process
/// made; no wait() returns them.
inline constexpr std::uint64_t kNoQueueSerial = std::numeric_limits<std::uint64_t>::max();
inline constexpr std::uint64_t kForeignQueueSerial = kNoQueueSerial - 1;

/// The error of a call during a call of another thread: a queue has one owner.
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
  /// `slot`, when given, is moved from unless the queue is full.
  Ticket take(const Transfer& transfer, Slot* slot, std::uint64_t tag) noexcept;
  /// The same, for callers outside queue.cc.
  Ticket take_transfer(const Transfer& transfer, Slot* slot, std::uint64_t tag) noexcept;
  /// An operation without local memory.
  Ticket take(const transport::WorkRequest& request, ByteOffset offset, std::uint64_t length_bytes,
              std::uint64_t tag) noexcept;
  /// A transfer of the whole slot, which is moved from unless the queue is full.
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
  /// Operations were taken whose completions have not been handed out.
  [[nodiscard]] bool busy() const noexcept { return room_.left != room_.depth; }
  [[nodiscard]] ByteOffset offset_of(Block block) const noexcept {
    return detail::offset_of(block, region_->info());
  }

 private:
  enum class CallState : std::uint8_t { kIdle, kInCall, kRefuseRevoked };
  static constexpr CallState kIdle = CallState::kIdle;
  static constexpr CallState kInCall = CallState::kInCall;
  /// One call of the queue's owner: a batch of operations, not each of them. False: another thread
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
  /// The operations that are taken and not submitted. Their places stand before the free ones in
  /// the same chain.
  struct Filled {
    OperationRecord* first;           ///< free_ itself, while nothing is filled
    OperationRecord* last = nullptr;  ///< only while count is not 0
    std::size_t count = 0;
    /// The opcode of the operation filled last, if one may follow it: see OperationRecord::follows.
    transport::Opcode run_opcode = kNoRun;
    bool any_split = false;    ///< one of them is not whole
    bool any_barrier = false;  ///< there is one before one of them
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
  // While there are groups, in queue_group.cc.
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
  RegionGrant* region_;  ///< operations that are taken are for it
  LaneDriver& lane_;     ///< all operations of the queue go there
  /// Every region that was selected.
  std::unordered_map<const RegionGrant*, std::shared_ptr<RegionGrant>> regions_;
  std::chrono::nanoseconds deadline_;
  /// Twice the depth: a completion that the caller still has does not count against the depth.
  std::vector<QueueEntry> table_;
  MemoryReleaser::Table memory_named_;  ///< in table_
  /// The free places, chained by next, behind those of filled_: to take one is to move on by one.
  OperationRecord* free_;
  Filled filled_;
  bool any_slots_ = false;       ///< a slot was ever taken: completions have some to give back
  std::size_t group_count_ = 0;  ///< groups that are not handed out
  std::size_t in_flight_ = 0;    ///< submitted, not yet taken out of the sink
  OperationList held_;           ///< submitted, held back by a barrier
  OperationList refused_;  ///< complete without a lane: misuse, cancelled, expired behind a barrier
  bool barrier_ = false;   ///< one stands behind the operation taken last
  BatchOrder order_;
  std::vector<CompletionSink::Run> ring_;
  CompletionSink sink_;
  mutable Deadline earliest_;            ///< no operation in flight has an earlier deadline
  EventNotifier event_;                  ///< told by a thread that completes an operation
  UniqueFd epoll_;                       ///< over event_ and the lane's descriptor
  std::unique_ptr<Completion[]> ready_;  ///< completions that the caller has; chained by next, too
  std::size_t ready_count_ = 0;
  std::uint64_t serial_ = 0;
  std::atomic<CallState> in_call_{CallState::kIdle};
};

}  // namespace remora::detail
