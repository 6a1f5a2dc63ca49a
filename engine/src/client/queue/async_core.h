#pragma once

/// What an AsyncQueue is made of: a callback queue, a record for each operation in flight that
/// outlives the coroutine's frame, and the line of those that wait for a record.
///
/// A frame and its record know each other until one of them lets go, by an exchange: the frame,
/// when it is destroyed; the record, when it resumes the coroutine. The second of them finds null.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <remora/engine/async.h>
#include <remora/mutex.h>

#include "base/index_stack.h"
#include "client/queue/callback_core.h"
#include "client/queue/queue_core.h"
#include "client/services/poller.h"

namespace remora::detail {

class JobThreads;

/// An operation's place in the queue, from its submission until its coroutine goes on.
struct AsyncRecord : Resumable {
  AsyncCore* core = nullptr;
  std::uint32_t index = 0;
  bool held = false;  ///< while it is posted: the core is held, not kept
  std::atomic<AsyncOperation*> operation{nullptr};  ///< null: its frame is gone
  AsyncRequest request{};
  // How it ended, with the request's slot.
  Status status;
  std::uint64_t old_value = 0;
};

class AsyncCore final : public CallbackCore {
 public:
  /// Errors: as Region::callback_queue, those of JobThreads::start.
  static Result<std::shared_ptr<AsyncCore>> create(std::shared_ptr<RegionGrant> region,
                                                   const QueueOptions& options,
                                                   const Resume& resume);
  AsyncCore(std::shared_ptr<RegionGrant> region, Poller& poller, const QueueOptions& options,
            const Resume& resume, std::shared_ptr<JobThreads> arena);

  // Any thread.
  /// The operation's coroutine is suspended; on success it may have gone on, and be gone, by the
  /// time that this returns. Errors: it has not been taken.
  Status take(AsyncOperation& operation) noexcept;
  /// Its frame is gone.
  void forget(AsyncOperation& operation) noexcept;
  /// Resumes the coroutine of an AsyncRecord, where there still is one. Where it is to go on.
  static void run_record(Resumable& record) noexcept;
  /// See ~AsyncQueue(). By its owner, once.
  void close() noexcept;

  using CallbackCore::drop;
  using CallbackCore::let_go;
  using CallbackCore::region;

 private:
  void go_on(AsyncRecord& record) noexcept;
  void settle_in(AsyncOperation& operation, AsyncRecord& record) noexcept;
  Status submit(AsyncRecord& record, Deadline until) noexcept;
  void ended(AsyncRecord& record, Completion& completion) noexcept;
  void post(AsyncRecord& record) noexcept;
  void give_back(AsyncRecord& record) noexcept;
  void line_up(AsyncOperation& operation) noexcept;
  void serve_line() noexcept;
  AsyncRecord* next_in_line(Deadline& until, bool& stopped) noexcept;
  void leave_line(AsyncOperation& operation) noexcept;

  Resume resume_;
  std::shared_ptr<JobThreads> arena_;
  std::vector<AsyncRecord> records_;
  IndexStack free_;
  /// In line. Exchanged on by the thread that lines up, before the look for a record, and by the
  /// one that gives one back, after that: one of the two sees the other.
  alignas(64) std::atomic<std::size_t> waiting_{0};
  Mutex mutex_;
  /// Those that wait for a place, the first that came first.
  AsyncOperation* first_ REMORA_GUARDED_BY(mutex_) = nullptr;
  AsyncOperation* last_ REMORA_GUARDED_BY(mutex_) = nullptr;
};

/// Of memory that is borrowed: a slot of the operation's own is kept by it.
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

/// A stop was requested before it was sent.
[[nodiscard]] inline Error stopped_before(transport::Opcode opcode) noexcept {
  return Error{Code::kCancelled, operation_name(opcode)}.with_subject(
      "a stop was requested before it was sent");
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
