#pragma once

/// Deregisters registered memory after its last handle was destroyed: at once or, if operations use
/// the memory, when the last of them has ended.
///
/// A count of operations for each memory would cost two atomics for each operation, on a cache line
/// that all threads share. Instead, the release searches the tables of the engine's queues: each
/// place names its memory from the time when the queue takes an operation until it hands out the
/// completion. Operations that are in no table count themselves (LocalMemory::begin_use()): those
/// of synchronous calls, and those that wait for a place.
///
/// The application destroys a handle only after the calls that used it, as with any object. So the
/// release sees every operation that uses the memory.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <remora/mutex.h>
#include <remora/result.h>

#include "base/event_loop.h"
#include "base/timer_fd.h"
#include "client/datapath/local_memory.h"
#include "client/datapath/operation_record.h"

namespace remora::detail {

/// Shared by an engine and the memory registered with it. Thread-safe, unless a function says
/// otherwise.
class MemoryReleaser : public std::enable_shared_from_this<MemoryReleaser> {
 public:
  MemoryReleaser() = default;
  ~MemoryReleaser();
  MemoryReleaser(const MemoryReleaser&) = delete;
  MemoryReleaser& operator=(const MemoryReleaser&) = delete;

  /// A handle of `bytes`; its copies share the memory.
  std::shared_ptr<LocalMemory> handle(std::span<std::byte> bytes);

  /// From now on the thread of `loop` calls sweep() while released memory is in use. Call it once,
  /// before the first table; `loop` lives until close(). Errors: kSystem.
  Status watch(EventLoop& loop);
  /// Deregisters released memory that no operation uses.
  void sweep() noexcept;
  /// The engine ends: there are no tables and no operations.
  void close() noexcept;

  /// Number of releases so far: see OperationRecord::name_several().
  [[nodiscard]] std::uint64_t releases() const noexcept {
    return releases_.load(std::memory_order_relaxed);
  }

  /// Registers the places of a queue, as long as the queue lives. A default-made one is for a queue
  /// that needs no registrations.
  class Table {
   public:
    Table() = default;
    template <typename Entry>
    Table(std::shared_ptr<MemoryReleaser> releaser, const std::vector<Entry>& places)
        : Table{std::move(releaser), static_cast<const OperationRecord*>(places.data()),
                sizeof(Entry), places.size()} {}
    ~Table();
    Table(const Table&) = delete;
    Table& operator=(const Table&) = delete;

    /// See MemoryReleaser::releases().
    [[nodiscard]] std::uint64_t releases() const noexcept {
      return releaser_ == nullptr ? 0 : releaser_->releases();
    }

   private:
    friend class MemoryReleaser;
    Table(std::shared_ptr<MemoryReleaser> releaser, const OperationRecord* first,
          std::size_t stride_bytes, std::size_t count);
    [[nodiscard]] bool names(const LocalMemory& memory) const noexcept;

    std::shared_ptr<MemoryReleaser> releaser_;
    const OperationRecord* first_ = nullptr;
    std::size_t stride_bytes_ = 0;
    std::size_t count_ = 0;
  };

 private:
  void release(LocalMemory* memory) noexcept;
  [[nodiscard]] bool in_use(const LocalMemory& memory) const noexcept REMORA_REQUIRES(mutex_);

  Mutex mutex_;  ///< never locked by a thread that holds a lane
  std::vector<const Table*> tables_ REMORA_GUARDED_BY(mutex_);
  /// Released memory that operations use; the latest release first.
  std::unique_ptr<LocalMemory> released_ REMORA_GUARDED_BY(mutex_);
  std::atomic<std::uint64_t> releases_{0};
  bool closed_ REMORA_GUARDED_BY(mutex_) = false;
  EventLoop* loop_ REMORA_GUARDED_BY(mutex_) = nullptr;
  EventLoop::Token watch_ REMORA_GUARDED_BY(mutex_) = 0;
  TimerFd timer_;  ///< open() is called with mutex_ locked; thread-safe after that
};

}  // namespace remora::detail
