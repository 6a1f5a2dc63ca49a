#pragma once

/// The operations that coroutines await on one queue: a record for each operation in flight, which
/// lives longer than the coroutine's frame, and the line of operations that wait for a record.
///
/// Two kinds of queues derive from AsyncCore: a poller of the engine drives a PolledAsyncCore; an
/// Executor drives an ExecutorQueue, in the thread that calls run().
///
/// A frame and its record point to each other until one of them ends that by an exchange: the frame
/// when it is destroyed, the record when it resumes the coroutine. The other one then finds null.

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <remora/engine/async.h>
#include <remora/engine/many.h>
#include <remora/engine/queue.h>
#include <remora/mutex.h>

#include "base/clock.h"
#include "base/index_stack.h"
#include "client/queue/coroutine_inbox.h"
#include "client/queue/queue_core.h"

namespace remora::detail {

/// An operation's place in the queue, from its submission until its coroutine is resumed. A group
/// has as many places as pairs, and uses one record; the others are its `spare` ones.
struct AsyncRecord : Resumable {
  AsyncCore* core = nullptr;
  AsyncRecord* spare = nullptr;  ///< the next place of the same operation, or null
  std::uint32_t index = 0;
  bool in_flight = false;  ///< of an ExecutorQueue: the operation is in its queue
  bool held = false;       ///< of a PolledAsyncCore: see hand_over()
  std::atomic<AsyncOperation*> operation{nullptr};  ///< null: the frame was destroyed
  AsyncRequest request{};
  /// Of the Executor that resumes the coroutine; null: the queue's Resume says where it is resumed.
  std::shared_ptr<CoroutineInbox> inbox;
  OwnedShared<RegionGrant> region;  ///< keeps a queue that belongs to its region
  /// The result, with the request's slot:
  Status status;
  std::uint64_t old_value = 0;
};

/// Owned by an AsyncQueue, a region or an Executor. Thread-safe if submit() and hand_over() are.
class AsyncCore {
 public:
  AsyncCore(const AsyncCore&) = delete;
  AsyncCore& operator=(const AsyncCore&) = delete;
  virtual ~AsyncCore() = default;

  /// Takes an operation whose coroutine is suspended. On success the coroutine may have been
  /// resumed, and its frame destroyed, before this returns. Errors: the operation was not taken.
  Status begin(AsyncOperation& operation) noexcept;
  /// Called when the frame of an operation that was taken is destroyed before its coroutine is
  /// resumed.
  void forget(AsyncOperation& operation) noexcept;
  /// Whether operations wait for a record.
  [[nodiscard]] bool has_line() const noexcept {
    return waiting_.load(std::memory_order_relaxed) != 0;
  }

 protected:
  /// `deadline`: the time that an operation has, from its co_await on. `belongs_to_region`: the
  /// record of an operation in flight keeps the region, and so this queue.
  AsyncCore(std::size_t depth, std::chrono::nanoseconds deadline,
            void (*run)(Resumable& record) noexcept, bool belongs_to_region);

  /// Submits the record's request to the queue below. Errors: it was not taken.
  virtual Status submit(AsyncRecord& record, Deadline until) noexcept = 0;
  /// Resumes the coroutine of an operation that has ended, in the thread where it is to be resumed,
  /// or has that done. Any thread.
  virtual void hand_over(AsyncRecord& record) noexcept = 0;

  /// A record is free while operations wait in line: submits them in their order, or has that done
  /// later. Any thread.
  virtual void serve_line() noexcept { submit_from_line(); }
  void submit_from_line() noexcept;

  /// Stores the result of an operation in its record.
  static void set_result(AsyncRecord& record, Completion& completion) noexcept;
  /// Gives the record back, and resumes the coroutine if its frame still exists. Called in the
  /// thread where the coroutine is to be resumed.
  void resume(AsyncRecord& record) noexcept;
  [[nodiscard]] std::span<AsyncRecord> records() noexcept { return records_; }

 private:
  void move_into(AsyncRecord& record, AsyncOperation& operation) noexcept;
  [[nodiscard]] Status check_group(const AsyncRequest& request) const noexcept;
  [[nodiscard]] AsyncRecord* take_records(std::size_t count) noexcept;
  void free_records(AsyncRecord& first) noexcept;
  void give_back(AsyncRecord& record) noexcept;
  void wait_in_line(AsyncOperation& operation) noexcept;
  AsyncRecord* take_first_in_line(Deadline& until, bool& stopped) noexcept;
  AsyncRecord* leave_line(AsyncOperation& operation) noexcept REMORA_REQUIRES(mutex_);

  const std::chrono::nanoseconds deadline_;
  const bool belongs_to_region_;
  std::vector<AsyncRecord> records_;
  IndexStack free_;
  /// Number of operations in line. A thread that adds an operation changes the number before it
  /// looks for a free record; a thread that gives a record back reads it after that. So one of the
  /// two sees the other.
  alignas(64) std::atomic<std::size_t> waiting_{0};
  Mutex mutex_;
  /// The operations in line, in their order.
  AsyncOperation* first_ REMORA_GUARDED_BY(mutex_) = nullptr;
  AsyncOperation* last_ REMORA_GUARDED_BY(mutex_) = nullptr;
};

/// Ends the use of begin_wait() when it is destroyed, except that of a group. A local object of one
/// thread.
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
    case AsyncRequest::Kind::kRead:
    case AsyncRequest::Kind::kReadMany: return transport::Opcode::kRead;
    case AsyncRequest::Kind::kWrite:
    case AsyncRequest::Kind::kWriteMany: return transport::Opcode::kWrite;
    case AsyncRequest::Kind::kWriteZeroes: return transport::Opcode::kWriteZeroes;
    case AsyncRequest::Kind::kCompareSwap:
    case AsyncRequest::Kind::kCompareSwapMany: return transport::Opcode::kCompareSwap;
    case AsyncRequest::Kind::kFetchAdd:
    case AsyncRequest::Kind::kFetchAddMany: break;
  }
  return transport::Opcode::kFetchAdd;
}

/// Calls `use` with the pairs of a group. A call of many atomics writes to its pairs, which it has
/// got as a span of pairs that are not const.
template <typename Use>
auto use_pairs(const AsyncRequest& request, Use use) noexcept {
  void* const pairs = const_cast<void*>(request.pairs);
  const std::size_t count = request.pair_count;
  switch (request.kind) {
    case AsyncRequest::Kind::kWriteMany:
      return use(std::span{static_cast<const WritePair*>(pairs), count});
    case AsyncRequest::Kind::kFetchAddMany:
      return use(std::span{static_cast<FetchAddPair*>(pairs), count});
    case AsyncRequest::Kind::kCompareSwapMany:
      return use(std::span{static_cast<CompareSwapPair*>(pairs), count});
    default: return use(std::span{static_cast<const ReadPair*>(pairs), count});
  }
}

template <typename Queue, typename... More>
auto AsyncRequest::give_to(Queue& queue, More... more) noexcept {
  if (is_group())
    return use_pairs(*this, [&](auto of_kind) { return queue.take_group(of_kind, each, more...); });
  const transport::Opcode opcode = opcode_of(kind);
  if (kind == Kind::kRead || kind == Kind::kWrite)
    return queue.take_transfer({opcode, offset, local, length_bytes, memory},
                               owns_slot ? &slot : nullptr, more...);
  return queue.take(
      {.opcode = opcode, .operands = {.atomic = {.compare_or_add = operand, .swap = swap}}}, offset,
      length_bytes, more...);
}

}  // namespace remora::detail
