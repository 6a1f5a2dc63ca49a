#pragma once

/// The operations that coroutines await on one queue: a record for each operation in flight, which
/// outlives the coroutine's frame, and the line of the operations that wait for a record.
///
/// There are two kinds of such a queue, which differ in the thread that drives it: PolledAsyncCore,
/// which a poller of the engine drives, and ExecutorQueue, which an Executor drives in the thread
/// that calls run().
///
/// A frame and its record point to each other until one of them ends that, by an exchange: the
/// frame when it is destroyed, the record when it resumes the coroutine. The second of them finds
/// null.

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <remora/engine/async.h>
#include <remora/engine/queue.h>
#include <remora/mutex.h>

#include "base/clock.h"
#include "base/index_stack.h"
#include "client/queue/coroutine_inbox.h"
#include "client/queue/queue_core.h"

namespace remora::detail {

/// An operation's place in the queue, from its submission until its coroutine goes on.
struct AsyncRecord : Resumable {
  AsyncCore* core = nullptr;
  std::uint32_t index = 0;
  bool in_flight = false;                           ///< of an ExecutorQueue: its queue has it
  bool held = false;                                ///< of a PolledAsyncCore: see hand_over()
  std::atomic<AsyncOperation*> operation{nullptr};  ///< null: its frame is gone
  AsyncRequest request{};
  /// Of the Executor in which the coroutine goes on; null where the queue's own Resume says that.
  std::shared_ptr<CoroutineInbox> inbox;
  OwnedShared<RegionGrant> region;  ///< keeps a queue that belongs to its region
  /// How it ended, with the request's slot.
  Status status;
  std::uint64_t old_value = 0;
};

/// Thread-safe where submit() and hand_over() are.
class AsyncCore {
 public:
  AsyncCore(const AsyncCore&) = delete;
  AsyncCore& operator=(const AsyncCore&) = delete;
  virtual ~AsyncCore() = default;

  /// Takes an operation whose coroutine is suspended. On success the coroutine may have gone on,
  /// and be gone, by the time that this returns. Errors: the operation was not taken.
  Status begin(AsyncOperation& operation) noexcept;
  /// The frame of an operation that was taken is destroyed before its coroutine has gone on.
  void forget(AsyncOperation& operation) noexcept;

 protected:
  /// `deadline`: the time that an operation has from its co_await on. `belongs_to_region`: while
  /// an operation is in flight, its record keeps the region, and with it this queue.
  AsyncCore(std::size_t depth, std::chrono::nanoseconds deadline,
            void (*run)(Resumable& record) noexcept, bool belongs_to_region);

  /// Gives the record's request to the queue below. Errors: it was not taken.
  virtual Status submit(AsyncRecord& record, Deadline until) noexcept = 0;
  /// Has an operation that has ended go on where its coroutine is to be resumed. Any thread.
  virtual void hand_over(AsyncRecord& record) noexcept = 0;

  /// A record has become free while operations wait in line: submits them, in the order in which
  /// they came, or has that done later. Any thread.
  virtual void serve_line() noexcept { submit_from_line(); }
  void submit_from_line() noexcept;

  /// Notes how an operation ended.
  static void set_result(AsyncRecord& record, Completion& completion) noexcept;
  /// Gives the record back and resumes the coroutine, if there still is one. In the thread in which
  /// the coroutine is to go on.
  void resume(AsyncRecord& record) noexcept;
  [[nodiscard]] std::span<AsyncRecord> records() noexcept { return records_; }
  /// Forgets all frames: none of their coroutines goes on by this queue.
  void forget_all() noexcept;

 private:
  void move_into(AsyncRecord& record, AsyncOperation& operation) noexcept;
  void give_back(AsyncRecord& record) noexcept;
  void wait_in_line(AsyncOperation& operation) noexcept;
  AsyncRecord* take_first_in_line(Deadline& until, bool& stopped) noexcept;
  void leave_line(AsyncOperation& operation) noexcept REMORA_REQUIRES(mutex_);

  const std::chrono::nanoseconds deadline_;
  const bool belongs_to_region_;
  std::vector<AsyncRecord> records_;
  IndexStack free_;
  /// Operations in line. A thread that puts one there changes it before it looks for a free record,
  /// and a thread that gives a record back looks at it after that: one of the two sees the other.
  alignas(64) std::atomic<std::size_t> waiting_{0};
  Mutex mutex_;
  /// The operations that wait for a record, in the order in which they came.
  AsyncOperation* first_ REMORA_GUARDED_BY(mutex_) = nullptr;
  AsyncOperation* last_ REMORA_GUARDED_BY(mutex_) = nullptr;
};

/// Keeps memory that is borrowed registered. An operation's own slot keeps itself.
inline void AsyncRequest::begin_wait() const noexcept {
  if (memory != nullptr && memory->has_handles()) memory->begin_use();
}
class AsyncRequest::Waited {
 public:
  explicit Waited(const AsyncRequest& request) noexcept
      : memory_{request.memory != nullptr && request.memory->has_handles() ? request.memory
                                                                           : nullptr} {}
  ~Waited() {
    if (memory_ != nullptr) memory_->end_use();
  }
  Waited(const Waited&) = delete;
  Waited& operator=(const Waited&) = delete;

 private:
  LocalMemory* memory_;
};

[[nodiscard]] constexpr transport::Opcode opcode_of(AsyncRequest::Kind kind) noexcept {
  switch (kind) {
    case AsyncRequest::Kind::kRead: return transport::Opcode::kRead;
    case AsyncRequest::Kind::kWrite: return transport::Opcode::kWrite;
    case AsyncRequest::Kind::kWriteZeroes: return transport::Opcode::kWriteZeroes;
    case AsyncRequest::Kind::kCompareSwap: return transport::Opcode::kCompareSwap;
    case AsyncRequest::Kind::kFetchAdd: break;
  }
  return transport::Opcode::kFetchAdd;
}

template <typename Queue, typename... More>
auto AsyncRequest::give_to(Queue& queue, More... more) noexcept {
  const transport::Opcode opcode = opcode_of(kind);
  if (kind == Kind::kRead || kind == Kind::kWrite)
    return queue.take_transfer({opcode, offset, local, length_bytes, memory},
                               owns_slot ? &slot : nullptr, more...);
  return queue.take({.opcode = opcode, .compare_or_add = operand, .swap = swap}, offset,
                    length_bytes, more...);
}

}  // namespace remora::detail
