#pragma once

/// Executor: runs coroutines over remote memory in the thread that calls run().
///
/// Whatever the tasks wait for is submitted together, one doorbell a region and round, and tasks
/// are resumed in this thread only: no lock, no thread of the engine's, no hand-over between
/// threads.
///
///   remora::Executor executor;
///   remora::Status copied = executor.run(copy(from, to, slots));
///
/// Thread safety: an executor belongs to one thread at a time; several may run at once, also on the
/// same regions. Inside a task, `co_await region.async().read(...)` finds the executor by itself.

#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include <remora/engine/buffer.h>
#include <remora/engine/task.h>
#include <remora/engine/types.h>
#include <remora/result.h>

namespace remora {

class Region;

namespace detail {
class ExecutorCore;
class RegionCore;

/// What one awaited operation is made of; stands in the coroutine's frame.
class AsyncOperation {
 public:
  enum class Kind : std::uint8_t { kRead, kWrite, kCompareSwap, kFetchAdd };

  AsyncOperation(std::shared_ptr<RegionCore> region, Kind kind, ByteOffset offset) noexcept;
  ~AsyncOperation();
  AsyncOperation(const AsyncOperation&) = delete;
  AsyncOperation& operator=(const AsyncOperation&) = delete;

  [[nodiscard]] bool await_ready() const noexcept { return false; }
  /// False: it could not be taken, and error_ says why.
  bool await_suspend(std::coroutine_handle<> waiter) noexcept;

 protected:
  friend class ExecutorCore;
  std::shared_ptr<RegionCore> region_;
  ExecutorCore* executor_ = nullptr;  ///< until the coroutine goes on
  std::coroutine_handle<> waiter_;
  ByteOffset offset_;
  std::uint64_t operand_ = 0;
  std::uint64_t swap_ = 0;
  std::uint64_t old_value_ = 0;
  Slot slot_;
  Status status_;
  std::uint32_t index_ = 0;
  Kind kind_;
};
}  // namespace detail

/// An awaited transfer: gives the slot back, or the error it ended with.
class [[nodiscard]] AsyncTransfer final : public detail::AsyncOperation {
 public:
  AsyncTransfer(std::shared_ptr<detail::RegionCore> region, Kind kind, ByteOffset offset,
                Slot&& slot) noexcept
      : AsyncOperation{std::move(region), kind, offset} {
    slot_ = std::move(slot);
  }
  Result<Slot> await_resume() noexcept {
    executor_ = nullptr;
    if (!status_) return status_.error();
    return std::move(slot_);
  }
};

/// An awaited atomic: gives what stood there before.
class [[nodiscard]] AsyncAtomic final : public detail::AsyncOperation {
 public:
  AsyncAtomic(std::shared_ptr<detail::RegionCore> region, Kind kind, ByteOffset offset,
              std::uint64_t operand, std::uint64_t swap) noexcept
      : AsyncOperation{std::move(region), kind, offset} {
    operand_ = operand;
    swap_ = swap;
  }
  Result<std::uint64_t> await_resume() noexcept {
    executor_ = nullptr;
    if (!status_) return status_.error();
    return old_value_;
  }
};

/// A region's operations for coroutines; from Region::async(). A slot that is passed belongs to the
/// operation and comes back with its result, so a destroyed coroutine frees nothing that is still
/// written. The operation begins when it is awaited, inside Executor::run().
/// Errors: as Completion::error(); kInvalidArgument outside of an executor.
class AsyncRegion {
 public:
  explicit AsyncRegion(std::shared_ptr<detail::RegionCore> core) noexcept
      : core_{std::move(core)} {}

  /// Fills the whole slot.
  [[nodiscard]] AsyncTransfer read(ByteOffset from, Slot&& into) const noexcept {
    return {core_, detail::AsyncOperation::Kind::kRead, from, std::move(into)};
  }
  [[nodiscard]] AsyncTransfer read(Block from, Slot&& into) const noexcept;
  /// Writes the whole slot.
  [[nodiscard]] AsyncTransfer write(ByteOffset to, Slot&& from) const noexcept {
    return {core_, detail::AsyncOperation::Kind::kWrite, to, std::move(from)};
  }
  [[nodiscard]] AsyncTransfer write(Block to, Slot&& from) const noexcept;
  [[nodiscard]] AsyncAtomic compare_swap(ByteOffset at, std::uint64_t expected,
                                         std::uint64_t desired) const noexcept {
    return {core_, detail::AsyncOperation::Kind::kCompareSwap, at, expected, desired};
  }
  [[nodiscard]] AsyncAtomic fetch_add(ByteOffset at, std::uint64_t delta) const noexcept {
    return {core_, detail::AsyncOperation::Kind::kFetchAdd, at, delta, 0};
  }

 private:
  std::shared_ptr<detail::RegionCore> core_;
};

struct ExecutorOptions {
  /// Operations in flight on one region; what is awaited beyond waits for its turn.
  std::size_t depth = 64;
};

class Executor {
 public:
  explicit Executor(const ExecutorOptions& options = {});
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// Runs `task` to its end and returns what it ended with. Blocks; operations keep their
  /// deadlines. Regions that it used are let go at the end. Never called from inside a task. A task
  /// that waits for what no operation will ever resume is a fault of the program, which ends by
  /// std::terminate.
  template <typename T>
  T run(Task<T> task) {
    drive(&has_ended<T>, &task, [](void* started) { static_cast<Task<T>*>(started)->start(); });
    return std::move(task.result());
  }

 private:
  template <typename T>
  static bool has_ended(void* task) noexcept {
    return static_cast<Task<T>*>(task)->done();
  }
  void drive(bool (*ended)(void*) noexcept, void* task, void (*start)(void*));

  std::unique_ptr<detail::ExecutorCore> core_;
};

}  // namespace remora
