#pragma once

/// SharedReceiveQueue: a queue of receives for many queue pairs.
///
/// A handle, see device.h: queue pairs keep it. Completions arrive at each queue pair's receive
/// queue, with its number.
///
/// Thread safety: `post_receive` (raw), `set_limit` and `query` are safe concurrently if the
/// provider locks. `start_receives` without a storage uses the queue's own: one batch with unposted
/// requests at a time.

#include <cstdint>
#include <infiniband/verbs.h>
#include <memory>
#include <ostream>

#include <remora/result.h>
#include <remora/verbs/protection_domain.h>
#include <remora/verbs/receive_batch.h>
#include <remora/verbs/slice.h>

namespace remora::verbs {

namespace detail {
struct SharedReceiveQueueState;
}

/// The options of a shared receive queue.
struct SharedReceiveQueueOptions {
  std::uint32_t depth = 64;  ///< receives that may be posted
  std::uint32_t sge = 1;     ///< slices of a receive
  /// Requests that the queue's own batch storage holds; 0: min(depth, 64).
  std::uint32_t batch_requests = 0;
  void* context = nullptr;  ///< ibv_srq::srq_context
};

/// A shared receive queue as the kernel knows it.
struct SharedReceiveQueueAttributes {
  std::uint32_t depth = 0;  ///< the granted one: at least the requested one
  std::uint32_t sge = 0;    ///< slices of a receive
  std::uint32_t limit = 0;  ///< 0: not armed
};
/// "receives 64 slices 1", and the limit of the attributes.
std::ostream& operator<<(std::ostream& out, const SharedReceiveQueueOptions& options);
/// "receives 64 slices 1", and the limit.
std::ostream& operator<<(std::ostream& out, const SharedReceiveQueueAttributes& attributes);

/// See the top of this file. Copyable handle.
class SharedReceiveQueue {
 public:
  /// An empty handle.
  SharedReceiveQueue() noexcept = default;

  /// A new queue, which keeps `domain`. Errors: kInvalidArgument (empty domain, zeros);
  /// kLimitExceeded (asked() and allowed()); kUnsupported; kOutOfMemory; kProvider (errno kept).
  /// Source: ibv_create_srq(3).
  [[nodiscard]] static Result<SharedReceiveQueue> create(
      const ProtectionDomain& domain, const SharedReceiveQueueOptions& options = {});

  /// True: made empty or moved from.
  [[nodiscard]] bool empty() const noexcept { return state_ == nullptr; }
  /// The domain that the queue keeps alive; valid as long as this handle.
  [[nodiscard]] const ProtectionDomain& domain() const noexcept;

  /// Begins a chain of receives in the queue's own storage.
  [[nodiscard]] SharedReceiveBatch start_receives() const noexcept;
  /// In `storage`, which must outlive the batch.
  [[nodiscard]] SharedReceiveBatch start_receives(ReceiveStorage& storage) const noexcept;
  /// One receive. Errors: as ReceiveBatch::post.
  Status post_receive(std::uint64_t id, const LocalSlice& local) const;
  /// ibv_post_srq_recv itself, through the function table: returns 0 or an errno; `*bad` is then
  /// the first receive that was not taken.
  int post_receive(ibv_recv_wr* chain, ibv_recv_wr** bad) const noexcept;

  /// Raises AsyncEvent::Kind::kSharedReceiveLimit once when fewer than `limit` receives are left;
  /// 0 disarms. Errors: kProvider (errno kept). Source: ibv_modify_srq(3).
  Status set_limit(std::uint32_t limit) const;
  /// Asks the kernel. Errors: kProvider (errno kept). Source: ibv_query_srq(3).
  [[nodiscard]] Result<SharedReceiveQueueAttributes> query() const;

  /// Borrowed; never destroy it.
  [[nodiscard]] ibv_srq* raw() const noexcept;

  /// True: both name the same queue.
  friend bool operator==(const SharedReceiveQueue& a, const SharedReceiveQueue& b) noexcept {
    return a.state_ == b.state_;
  }

 private:
  explicit SharedReceiveQueue(std::shared_ptr<detail::SharedReceiveQueueState> state) noexcept
      : state_{std::move(state)} {}
  std::shared_ptr<detail::SharedReceiveQueueState> state_;
};
/// "shared receive queue 3 on rxe0"; "no shared receive queue".
std::ostream& operator<<(std::ostream& out, const SharedReceiveQueue& queue);

}  // namespace remora::verbs
