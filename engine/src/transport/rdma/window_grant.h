#pragma once

/// Grants as type-2 memory windows, where those keep clients apart: the pool is registered once
/// on a device, without remote rights, in one protection domain for all its sessions; a grant is a
/// window for each of its extents on each lane of its session, bound on the server's queue pair of
/// that lane. A window's key is of use on its own queue pair only.
///
/// Windows go with their grant or with their lane, whichever is first, and before the queue pair.

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <unordered_set>
#include <utility>
#include <vector>

#include <remora/mutex.h>
#include <remora/result.h>
#include <remora/verbs/access.h>
#include <remora/verbs/completion_queue.h>
#include <remora/verbs/memory_region.h>
#include <remora/verbs/memory_window.h>
#include <remora/verbs/queue_pair.h>

#include "base/clock.h"
#include "transport/grant.h"
#include "transport/rdma/budget.h"

namespace remora::transport::rdma {

/// The remote rights of a grant.
[[nodiscard]] verbs::Access remote_access(Rights rights) noexcept;
/// The same, less what the device refuses: atomics where it has none.
[[nodiscard]] verbs::Access remote_access(Rights rights, const verbs::Device& device) noexcept;

/// What windows are bound to: a part of a registration, which outlives them.
struct LeasedRange {
  const verbs::MemoryRegion* memory = nullptr;
  std::uint64_t offset_bytes = 0;
  std::uint64_t length_bytes = 0;
  [[nodiscard]] std::uint64_t address() const noexcept { return memory->address() + offset_bytes; }
};

/// The pool's pieces on one device, registered for windows. Thread-safe.
class LeasedMemory {
 public:
  struct Budgets {
    std::shared_ptr<Budget> registrations;
    std::shared_ptr<Budget> windows;
    std::shared_ptr<Budget> bytes{};  ///< of grants' own registrations; null: not counted
  };
  /// `hold` keeps the bytes of `pieces`, and goes after the registrations. **Blocks** while they
  /// are pinned, and ends between two pieces at `stop`. `on_step`: in this thread, meanwhile, how
  /// many bytes are registered. Errors: kOutOfMemory (see Reason::kMemlock), kLimitExceeded,
  /// kProvider, kCancelled (`stop`).
  [[nodiscard]] static Result<std::shared_ptr<const LeasedMemory>> create(
      const verbs::Device& device, std::span<const MemoryStretch> pieces,
      std::shared_ptr<void> hold, Budgets budgets, const std::stop_token& stop = {},
      const std::function<void(std::uint64_t done_bytes)>& on_step = {});

  /// Of all lanes whose grants are windows.
  [[nodiscard]] const verbs::ProtectionDomain& domain() const noexcept { return domain_; }
  /// Nothing where it is not within one piece: a region's own memory.
  [[nodiscard]] std::optional<LeasedRange> find(const MemoryStretch& stretch) const noexcept;
  /// Whether find() finds each of them: a grant of them registers nothing.
  [[nodiscard]] bool covers(std::span<const MemoryStretch> stretches) const noexcept;
  [[nodiscard]] const Budgets& budgets() const noexcept { return budgets_; }

 private:
  LeasedMemory(std::shared_ptr<void> hold, verbs::ProtectionDomain domain, Budgets budgets,
               BudgetShare share, std::vector<verbs::MemoryRegion> pieces) noexcept;
  std::shared_ptr<void> hold_;  // last to go
  verbs::ProtectionDomain domain_;
  Budgets budgets_;
  BudgetShare share_;
  std::vector<verbs::MemoryRegion> pieces_;  ///< by address
};

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

/// One grant. Used by one thread at a time.
class WindowGrant final : public GrantHandle {
 public:
  /// Without any window yet. What is not of `leased` is registered for this grant. **Blocks** while
  /// that is pinned. Errors: those of LeasedMemory::create().
  [[nodiscard]] static Result<std::unique_ptr<WindowGrant>> create(
      std::shared_ptr<const LeasedMemory> leased, const GrantRequest& request);
  ~WindowGrant() override;
  WindowGrant(const WindowGrant&) = delete;
  WindowGrant& operator=(const WindowGrant&) = delete;

  /// Binds what is missing on `lanes`, and fills in the keys of all. What the budget has admitted
  /// stays the grant's while it lives, with lanes or without: a session must be able to come back
  /// to its grants, and a client that hangs up makes no room for others. `extents` are this
  /// grant's, or none yet. **Blocks** until `deadline`, and a millisecond more for each window.
  /// Errors: kLimitExceeded, before the device is asked; those of WindowLane::bind(). What was
  /// bound before stays. The result of revoke() covers what an error leaves.
  Status renew(const WindowLanes& lanes, std::vector<WireExtent>& extents, LaneKeys& keys,
               Deadline deadline);
  /// Also after an error of renew(). Errors: those of WindowLane::drop().
  Status revoke() noexcept override { return forget_lanes_but({}); }
  void leave_device() noexcept override;
  /// What it is made of; null after leave_device().
  [[nodiscard]] const std::shared_ptr<const LeasedMemory>& leased() const noexcept {
    return leased_;
  }
  /// To make it anew, on another LeasedMemory.
  [[nodiscard]] GrantRequest request() const noexcept {
    return {.extents = request_, .rights = asked_};
  }

 private:
  Status forget_lanes_but(const WindowLanes& lanes) noexcept;
  Status reserve(std::size_t lanes);
  WindowGrant(std::shared_ptr<const LeasedMemory> leased, const GrantRequest& request,
              verbs::Access rights)
      : leased_{std::move(leased)},
        request_{request.extents.begin(), request.extents.end()},
        asked_{request.rights},
        rights_{rights} {}

  std::shared_ptr<const LeasedMemory> leased_;
  const std::vector<MemoryStretch> request_;
  const Rights asked_;
  const verbs::Access rights_;
  std::optional<BudgetShare> own_share_;          ///< of own_
  std::optional<BudgetShare> own_bytes_share_;    ///< of the bytes of own_
  std::vector<verbs::MemoryRegion> own_;          ///< registered for this grant alone
  std::vector<LeasedRange> stretches_;            ///< in the region's order
  std::vector<std::weak_ptr<WindowLane>> lanes_;  ///< that may have windows of it
  std::optional<BudgetShare> share_;              ///< of windows: given back when they have gone
  std::size_t lanes_admitted_ = 0;                ///< by that
};

}  // namespace remora::transport::rdma
