#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <unordered_set>
#include <utility>
#include <vector>

#include <remora/mutex.h>
#include <remora/result.h>
#include <remora/verbs/access.h>
#include <remora/verbs/completion_queue.h>
#include <remora/verbs/memory_window.h>
#include <remora/verbs/queue_pair.h>

#include "base/clock.h"
#include "transport/rdma/leased_memory.h"

namespace remora::transport::rdma {

/// The memory windows of one lane, on the server's side. Thread-safe; one bind at a time.
class WindowLane {
 public:
  /// The most requests in the lane's send queue; only binding windows uses that queue.
  static constexpr std::uint32_t kBinds = 16;
  /// The number of keys of freed windows that are remembered, the newest.
  static constexpr std::size_t kMaxGivenUp = std::size_t{1} << 15U;
  /// The time limit of one chain of kBinds requests, for which a device needs microseconds.
  static constexpr std::chrono::seconds kChainTime{1};
  /// The grant that owns windows.
  using Owner = const void*;

  /// Errors: kOutOfMemory, kProvider (of its completion queue).
  [[nodiscard]] static Result<std::shared_ptr<WindowLane>> create(const verbs::Device& device);
  explicit WindowLane(verbs::CompletionQueue queue) noexcept : queue_{std::move(queue)} {}

  /// Where the send queue of the lane's queue pair has to complete.
  [[nodiscard]] const verbs::CompletionQueue& queue() const noexcept { return queue_; }
  /// The lane is connected. `pair` exists until end().
  void begin(verbs::QueuePair<verbs::Rc>& pair);
  /// Whether the owner has windows here.
  [[nodiscard]] bool has(Owner owner);
  /// The keys of the owner's windows, one for each of `stretches`: windows that are not bound yet
  /// are bound now. **Blocks** until the device has done that, at most until `deadline`, and at
  /// most kChainTime for a chain that the device does not answer. A chain that fails or is not
  /// answered moves the lane to its error state, since it is unknown which windows are bound; other
  /// errors leave the lane unchanged. After an error the owner has no window here, or drop() says
  /// why it may have one. Errors: kOutOfMemory; kConnectionLost: the lane has ended, or this error
  /// ends it; kTimedOut; kProvider.
  [[nodiscard]] Result<std::vector<std::uint32_t>> bind(Owner owner,
                                                        std::span<const LeasedRange> stretches,
                                                        verbs::Access rights, Deadline deadline);
  /// On return the owner's windows are freed, or, if the device does not free one, the lane is in
  /// its error state, or the device has gone. Errors: kProvider (errno kept): the device has
  /// refused to free a window, of this owner or of another one, and to move the lane to its error
  /// state. The window's key works as long as the lane exists, and each later call returns this
  /// error, unless the lane can be moved to its error state then. May be called after end().
  Status drop(Owner owner) noexcept;
  /// No further window is bound, and a thread that is binding returns soon. Never blocks.
  /// Idempotent.
  void stop() noexcept { ending_.store(true); }
  /// On return all windows are freed, except those for which drop() returns an error, and the queue
  /// pair is not used any more. **Blocks** as long as freeing very many windows takes. Idempotent.
  void end() noexcept;

 private:
  [[nodiscard]] Result<std::vector<verbs::MemoryWindow>> allocate(std::size_t count,
                                                                  Deadline deadline)
      REMORA_REQUIRES(mutex_);
  Status bind_all(std::span<verbs::MemoryWindow> windows, std::span<const LeasedRange> stretches,
                  verbs::Access rights, Deadline deadline) REMORA_REQUIRES(mutex_);
  /// On return, if in_error_ is set, the device executes no request of the lane any more.
  void move_to_error(const Error& why) noexcept REMORA_REQUIRES(mutex_);
  /// Frees the windows. Errors: those of drop().
  Status release(std::span<verbs::MemoryWindow> windows) noexcept REMORA_REQUIRES(mutex_);
  /// Errors: left_, unless the lane is in its error state, or can be moved to it now, or the device
  /// has gone.
  [[nodiscard]] Status check_left() noexcept REMORA_REQUIRES(mutex_);
  /// Makes the next bind of `window` give a key that no window of this lane had. False: the window
  /// has no such key.
  [[nodiscard]] bool choose_new_key(verbs::MemoryWindow& window) const REMORA_REQUIRES(mutex_);
  void give_up_key(const verbs::MemoryWindow& window) noexcept REMORA_REQUIRES(mutex_);
  Status await(std::uint64_t first_id, std::size_t count, Deadline deadline)
      REMORA_REQUIRES(mutex_);
  [[nodiscard]] static Error gone();

  std::atomic<bool> ending_{false};
  verbs::CompletionQueue queue_;  ///< polled with mutex_
  /// Held while windows are bound; no thread holds the mutexes of two lanes.
  remora::detail::Mutex mutex_;
  /// Null before begin() and after end().
  verbs::QueuePair<verbs::Rc>* pair_ REMORA_GUARDED_BY(mutex_) = nullptr;
  std::uint64_t next_id_ REMORA_GUARDED_BY(mutex_) = 1;
  std::map<Owner, std::vector<verbs::MemoryWindow>> bound_ REMORA_GUARDED_BY(mutex_);
  /// Why the device has not freed a window; empty: it has freed all of them.
  std::optional<Error> left_ REMORA_GUARDED_BY(mutex_);
  /// The device has moved the queue pair to its error state at this lane's request.
  bool in_error_ REMORA_GUARDED_BY(mutex_) = false;
  /// Keys of freed windows: a request that was posted late must not use one of them. A lane's keys
  /// work on that lane only, so they end with it.
  std::unordered_set<std::uint32_t> given_up_ REMORA_GUARDED_BY(mutex_);
  std::deque<std::uint32_t> given_up_order_ REMORA_GUARDED_BY(mutex_);  ///< the oldest first
};

/// By number of the lane; null: there is no such lane.
using WindowLanes = std::vector<std::shared_ptr<WindowLane>>;

}  // namespace remora::transport::rdma
