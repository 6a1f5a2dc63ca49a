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

/// The windows of one lane, on the server's side. Thread-safe; one bind at a time.
class WindowLane {
 public:
  /// Requests in the lane's send queue at a time; only windows use that queue.
  static constexpr std::uint32_t kBinds = 16;
  /// Keys of windows that went, of which as many are remembered: the newest.
  static constexpr std::size_t kMaxGivenUp = std::size_t{1} << 15U;
  /// A device needs microseconds for a chain of as many.
  static constexpr std::chrono::seconds kChainTime{1};
  /// Whose windows they are.
  using Owner = const void*;

  /// Errors: kOutOfMemory, kProvider (of its completion queue).
  [[nodiscard]] static Result<std::shared_ptr<WindowLane>> create(const verbs::Device& device);
  explicit WindowLane(verbs::CompletionQueue queue) noexcept : queue_{std::move(queue)} {}

  /// Where the send queue of the lane's queue pair has to complete.
  [[nodiscard]] const verbs::CompletionQueue& queue() const noexcept { return queue_; }
  /// The lane is connected. `pair` lives until end().
  void begin(verbs::QueuePair<verbs::Rc>& pair);
  /// Whether the owner has windows here.
  [[nodiscard]] bool has(Owner owner);
  /// The keys of the owner's windows, one for each of `stretches`: bound now, if they were not yet.
  /// **Blocks** until the device has done that, at most until `deadline`, and no longer than
  /// kChainTime for a chain that it does not answer. A chain without a good answer moves the lane
  /// to its error state, since it is not known then what is bound; after any other error it is as
  /// it was. After an error the owner has no window here, or drop() says why it may have one.
  /// Errors: kOutOfMemory; kConnectionLost: the lane has ended, or ends by this; kTimedOut;
  /// kProvider.
  [[nodiscard]] Result<std::vector<std::uint32_t>> bind(Owner owner,
                                                        std::span<const LeasedRange> stretches,
                                                        verbs::Access rights, Deadline deadline);
  /// The owner's windows are gone on return, or, where the device does not free one, the lane
  /// is in its error state, or the device has gone. Errors: kProvider (errno kept): the device has
  /// refused to free a window, of this owner or of another one, and to move the lane to its
  /// error state. The window's key works for as long as the lane exists, and each later call says
  /// so, unless the lane can be moved then. Also after end().
  Status drop(Owner owner) noexcept;
  /// Nothing more is bound, and a thread that binds soon stops. Never blocks. Idempotent.
  void stop() noexcept { ending_.store(true); }
  /// All windows are gone on return, but for those of which drop() says that they are not, and
  /// nothing uses the queue pair any more. **Blocks** for as long as freeing very many takes.
  /// Idempotent.
  void end() noexcept;

 private:
  [[nodiscard]] Result<std::vector<verbs::MemoryWindow>> allocate(std::size_t count,
                                                                  Deadline deadline)
      REMORA_REQUIRES(mutex_);
  Status bind_all(std::span<verbs::MemoryWindow> windows, std::span<const LeasedRange> stretches,
                  verbs::Access rights, Deadline deadline) REMORA_REQUIRES(mutex_);
  /// The device carries out no request of the lane any more, if in_error_ is set then.
  void move_to_error(const Error& why) noexcept REMORA_REQUIRES(mutex_);
  /// Frees the windows. Errors: those of drop().
  Status release(std::span<verbs::MemoryWindow> windows) noexcept REMORA_REQUIRES(mutex_);
  /// Errors: left_, unless the lane is in its error state, or can be moved there now, or the device
  /// has gone.
  [[nodiscard]] Status check_left() noexcept REMORA_REQUIRES(mutex_);
  /// Has the next bind of `window` give a key that no window of this lane had. False: it has none.
  [[nodiscard]] bool choose_new_key(verbs::MemoryWindow& window) const REMORA_REQUIRES(mutex_);
  void give_up_key(const verbs::MemoryWindow& window) noexcept REMORA_REQUIRES(mutex_);
  Status await(std::uint64_t first_id, std::size_t count, Deadline deadline)
      REMORA_REQUIRES(mutex_);
  [[nodiscard]] static Error gone();

  std::atomic<bool> ending_{false};
  verbs::CompletionQueue queue_;  ///< polled with mutex_
  /// Held while windows are bound; no thread holds those of two lanes.
  remora::detail::Mutex mutex_;
  /// Null before begin() and after end().
  verbs::QueuePair<verbs::Rc>* pair_ REMORA_GUARDED_BY(mutex_) = nullptr;
  std::uint64_t next_id_ REMORA_GUARDED_BY(mutex_) = 1;
  std::map<Owner, std::vector<verbs::MemoryWindow>> bound_ REMORA_GUARDED_BY(mutex_);
  /// Why the device has not freed a window; nothing: it has freed all of them.
  std::optional<Error> left_ REMORA_GUARDED_BY(mutex_);
  /// The device has moved the queue pair to its error state at this lane's request.
  bool in_error_ REMORA_GUARDED_BY(mutex_) = false;
  /// Keys of windows that went: a request that was posted late must not pass by one of them. A
  /// lane's keys are of use on that lane only, so they end with it.
  std::unordered_set<std::uint32_t> given_up_ REMORA_GUARDED_BY(mutex_);
  std::deque<std::uint32_t> given_up_order_ REMORA_GUARDED_BY(mutex_);  ///< the oldest first
};

/// By number; null: there is no such lane.
using WindowLanes = std::vector<std::shared_ptr<WindowLane>>;

}  // namespace remora::transport::rdma
