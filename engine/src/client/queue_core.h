#pragma once

/// What a Queue is made of: a table of operations, a list of those filled, and the completions that
/// are out with the caller.

#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include <remora/engine/queue.h>

#include "client/batch_order.h"
#include "client/engine_core.h"
#include "client/operation.h"
#include "support/unique_fd.h"

namespace remora::detail {

/// Byte offset of a block; past the end of everything when the region has no such block.
[[nodiscard]] inline ByteOffset offset_of(Block block, const RegionInfo& info) noexcept {
  // Past the end whatever the block's size: saturates, so that it is refused as out of range.
  std::uint64_t offset = 0;
  if (__builtin_mul_overflow(block.index, info.block_bytes, &offset))
    return ByteOffset{std::numeric_limits<std::uint64_t>::max()};
  return ByteOffset{offset};
}

/// One place of a queue's table: an operation from its taking until its completion has ended.
struct QueueEntry : OperationRecord {
  Slot slot;
  std::uint64_t tag = 0;
  std::uint32_t index = 0;
  std::uint32_t generation = 1;
  QueueEntry* next_free = nullptr;
  bool taken = false;          ///< and not handed out
  bool after_barrier = false;  ///< waits until all before it have completed
};

/// A call while another thread is in one: a queue has one owner.
[[nodiscard]] Error not_the_owner(Operation operation) noexcept;

class QueueCore {
 public:
  /// Errors: kInvalidArgument (depth), kConnectionLost, kOutOfMemory.
  static Result<std::unique_ptr<QueueCore>> create(std::shared_ptr<RegionCore> region,
                                                   const QueueOptions& options);
  QueueCore(std::shared_ptr<RegionCore> region, std::size_t depth,
            std::chrono::nanoseconds deadline);
  ~QueueCore();
  QueueCore(const QueueCore&) = delete;
  QueueCore& operator=(const QueueCore&) = delete;

  struct Transfer {
    transport::Opcode opcode;
    ByteOffset offset;
    std::byte* local;
    std::size_t length_bytes;
    LocalMemory* memory;
  };
  /// `slot`, when given, is moved from unless the queue is full.
  Ticket take(const Transfer& transfer, Slot* slot, std::uint64_t tag) noexcept;
  /// The same, for others than the queue's own functions.
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
  Status select(const std::shared_ptr<RegionCore>& region) noexcept;
  Status submit() noexcept;
  void barrier() noexcept;
  Status cancel(Ticket ticket) noexcept;
  Completions wait(std::size_t at_least) noexcept;
  Result<int> event_fd() noexcept;
  Completions progress() noexcept;
  [[nodiscard]] Deadline next_deadline() const noexcept;
  /// Ends the completions with this serial, if they are still out.
  void end(std::uint64_t serial) noexcept;

  [[nodiscard]] std::size_t depth() const noexcept { return depth_; }
  [[nodiscard]] std::size_t size() const noexcept { return taken_; }
  [[nodiscard]] ByteOffset offset_of(Block block) const noexcept {
    return detail::offset_of(block, region_->info());
  }

 private:
  /// One call that moves the queue: a batch of operations, not each of them. False: there is one
  /// already, in another thread.
  class Turn {
   public:
    explicit Turn(QueueCore& queue) noexcept
        : in_call_{queue.in_call_.exchange(true, std::memory_order_acquire) ? nullptr
                                                                            : &queue.in_call_} {}
    ~Turn() {
      if (in_call_ != nullptr) in_call_->store(false, std::memory_order_release);
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    [[nodiscard]] explicit operator bool() const noexcept { return in_call_ != nullptr; }

   private:
    std::atomic<bool>* in_call_;
  };
  static Completions refused() noexcept { return Completions{nullptr, {}, 0}; }
  QueueEntry* acquire(std::uint64_t tag) noexcept;
  /// A transfer of one piece; sound: it may be submitted.
  bool fill(QueueEntry& entry, const Transfer& transfer) noexcept;
  Ticket keep(QueueEntry& entry, bool sound) noexcept;
  void hand_out(OperationRecord& operation) noexcept;
  bool lend_to_filled() noexcept;
  void hand_over(OperationList& operations) noexcept;
  void hand_over_held() noexcept;
  void bar(OperationRecord* operation) noexcept;
  Completions hand_out_all() noexcept;
  void refuse(OperationRecord& operation, Code code) noexcept;
  void keep_refused(OperationRecord& operation) noexcept;
  [[nodiscard]] Deadline earliest_deadline() const noexcept;

  RegionCore* region_;  ///< what is taken is for it
  LaneDriver& lane_;    ///< all of it goes there
  /// Every region that was selected.
  std::unordered_map<const RegionCore*, std::shared_ptr<RegionCore>> regions_;
  std::chrono::nanoseconds deadline_;
  std::size_t depth_;
  /// Twice the depth: a completion that is still out does not count against the depth.
  std::vector<QueueEntry> table_;
  std::size_t taken_ = 0;      ///< not handed out yet
  std::size_t in_flight_ = 0;  ///< submitted, not yet taken out of the sink
  OperationList filled_;       ///< taken, not submitted
  OperationList held_;         ///< submitted, held back by a barrier
  OperationList refused_;  ///< complete without a lane: misuse, cancelled, expired behind a barrier
  bool barrier_ = false;   ///< stands behind what was taken last
  BatchOrder order_;
  std::vector<OperationRecord*> ring_;
  CompletionSink sink_;
  mutable Deadline earliest_;  ///< no operation in flight has an earlier deadline
  Watcher event_;              ///< told by whoever completes an operation of this queue
  UniqueFd epoll_;             ///< over event_ and the lane's descriptor
  std::vector<Completion> ready_;
  QueueEntry* free_;
  std::size_t ready_count_ = 0;
  std::uint64_t serial_ = 0;
  std::atomic<bool> in_call_{false};
};

}  // namespace remora::detail
