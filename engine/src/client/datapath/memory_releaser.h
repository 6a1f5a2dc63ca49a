#pragma once

/// Registered memory whose last handle has gone: deregistered at once, or, where operations that
/// were taken use it, when the last of them has ended.
///
/// A count of the operations in flight for each memory would cost two atomics an operation, on one
/// cache line for all threads. Instead the release looks for the memory in the tables of the
/// engine's queues: each place names its memory from the taking of an operation until its
/// completion has been handed out. Operations that are in no table count themselves
/// (LocalMemory::begin_use()): those of synchronous calls, and those that wait for a place.
///
/// The application releases a handle only after the calls that used it, as with any object. So the
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
#include "client/datapath/operation.h"

namespace remora::detail {

/// Thread-safe, unless said otherwise. Shared by an engine and the memory registered with it.
class MemoryReleaser : public std::enable_shared_from_this<MemoryReleaser> {
 public:
  MemoryReleaser() = default;
  ~MemoryReleaser();
  MemoryReleaser(const MemoryReleaser&) = delete;
  MemoryReleaser& operator=(const MemoryReleaser&) = delete;

  /// A handle of `bytes`; its copies share it.
  std::shared_ptr<LocalMemory> handle(std::span<std::byte> bytes);

  /// From now on sweeps in the thread of `loop` while released memory is in use. Once, before the
  /// first table; `loop` lives until close(). Errors: kSystem.
  Status watch(EventLoop& loop);
  /// Deregisters the released memory that no operation uses any more.
  void sweep() noexcept;
  /// The engine ends: there is no table any more, and no operation.
  void close() noexcept;

  /// The number of releases so far: see OperationRecord::name_several().
  [[nodiscard]] std::uint64_t releases() const noexcept {
    return releases_.load(std::memory_order_relaxed);
  }

  /// The places of a queue, for as long as it lives. Empty: of a queue that needs no registration.
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

  Mutex mutex_;  ///< never locked with a lane taken
  std::vector<const Table*> tables_ REMORA_GUARDED_BY(mutex_);
  /// Without a handle, and in use: the latest first.
  std::unique_ptr<LocalMemory> released_ REMORA_GUARDED_BY(mutex_);
  std::atomic<std::uint64_t> releases_{0};
  bool closed_ REMORA_GUARDED_BY(mutex_) = false;
  EventLoop* loop_ REMORA_GUARDED_BY(mutex_) = nullptr;
  EventLoop::Token watch_ REMORA_GUARDED_BY(mutex_) = 0;
  TimerFd timer_;  ///< opened with mutex_ locked; thread-safe from then on
};

}  // namespace remora::detail
