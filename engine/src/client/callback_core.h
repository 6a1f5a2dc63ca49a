#pragma once

/// What a CallbackQueue is made of: a table of operations with their callables, and the two ways in
/// which they reach the poller: a sink, filled by whoever moves the lane, and, where an operation
/// is done by the time it was submitted, a stack that any thread pushes on.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include <remora/engine/callback_queue.h>

#include "client/engine_core.h"
#include "client/operation.h"
#include "client/queue_core.h"
#include "support/index_stack.h"

namespace remora::detail {

class Poller;

/// One place of the table: an operation from its submission until its callback has returned.
struct CallbackEntry : QueueEntry {
  static constexpr Deadline::rep kNever = std::numeric_limits<Deadline::rep>::max();
  /// The deadline while it is in flight: the record itself is the lane's then.
  std::atomic<Deadline::rep> due{kNever};
  const CallbackType* type = nullptr;
  alignas(std::max_align_t) std::array<std::byte, kCallbackBytesMax> callable{};
};

class CallbackCore {
 public:
  /// Errors: as Region::callback_queue.
  static Result<CallbackCore*> create(std::shared_ptr<RegionCore> region,
                                      const QueueOptions& options);
  CallbackCore(std::shared_ptr<RegionCore> region, Poller& poller, std::size_t depth,
               std::chrono::nanoseconds deadline);
  CallbackCore(const CallbackCore&) = delete;
  CallbackCore& operator=(const CallbackCore&) = delete;

  // Any thread.
  Status take(const QueueCore::Transfer& transfer, Slot* slot, GivenCallback given,
              std::uint64_t tag) noexcept;
  Status take(const transport::WorkRequest& request, ByteOffset offset, std::uint64_t length_bytes,
              GivenCallback given, std::uint64_t tag) noexcept;
  [[nodiscard]] std::size_t depth() const noexcept { return depth_; }
  [[nodiscard]] std::size_t size() const noexcept {
    return in_flight_.load(std::memory_order_acquire);
  }
  [[nodiscard]] ByteOffset offset_of(Block block) const noexcept {
    return detail::offset_of(block, region_->info());
  }
  /// Ends the queue, and frees it or leaves it to the poller. By its owner, once.
  static void close(CallbackCore* core) noexcept;

  // The poller.
  /// Moves what is in flight and calls back. True: something had ended.
  bool serve() noexcept;
  /// Has the poller's `epoll` woken by what completes from now on; then tells until when it may
  /// sleep.
  Deadline arm(int epoll) noexcept;
  /// Something is to be served. After arm(): nothing else will wake the poller for it.
  [[nodiscard]] bool ready() const noexcept;
  /// Nobody wants it any more, and nothing of it is in flight.
  [[nodiscard]] bool over() const noexcept {
    return closing_.load(std::memory_order_acquire) && size() == 0;
  }
  /// The last thing that the poller does with it.
  void leave(int epoll) noexcept;

 private:
  friend class Poller;
  CallbackEntry* acquire(Status& why) noexcept;
  void release(CallbackEntry& entry) noexcept;
  Status hand_over(CallbackEntry& entry, bool sound, Slot* slot, GivenCallback given,
                   std::uint64_t tag) noexcept;
  void carry_out(CallbackEntry& entry) noexcept;
  void end(CallbackEntry& entry) noexcept;
  void call(CallbackEntry& entry) noexcept;
  void note_exception(const char* what) noexcept;
  void end_overdue() noexcept;
  [[nodiscard]] Deadline earliest_deadline() noexcept;
  [[nodiscard]] LaneDriver& lane() const noexcept { return region_->session().lane(); }

  std::shared_ptr<RegionCore> region_;
  Poller& poller_;
  std::chrono::nanoseconds deadline_;
  std::size_t depth_;
  bool immediate_;  ///< operations are done when the lane has taken them
  /// One more than the depth: that of the callback that runs.
  std::vector<CallbackEntry> table_;
  IndexStack free_;
  std::vector<OperationRecord*> ring_;
  CompletionSink sink_;  ///< the poller's
  std::atomic<bool> closing_{false};
  alignas(64) std::atomic<std::size_t> in_flight_{0};        ///< until the callback begins
  alignas(64) std::atomic<OperationRecord*> done_{nullptr};  ///< chained by next, the latest first

  // The poller's.
  Deadline earliest_{};  ///< no operation in flight has an earlier deadline
  std::uint64_t exceptions_ = 0;
  CallbackCore* next_ = nullptr;  ///< of the same poller
  // Of the poller and of close(), under the poller's lock.
  bool gone_ = false;  ///< the poller has left it
  bool left_ = false;  ///< the poller is to free it
};

}  // namespace remora::detail
