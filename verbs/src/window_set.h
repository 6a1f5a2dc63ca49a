#pragma once

/// The windows that a queue pair or a registration must free before it is destroyed. Internal.
///
/// The queue pair of a window knows it from the start, and so does each registration to which it
/// was bound. The first of window, pair and registration that is destroyed frees it.

#include <cstddef>
#include <infiniband/verbs.h>
#include <memory>
#include <vector>

#include <remora/mutex.h>
#include <remora/verbs/protection_domain.h>

namespace remora::verbs::detail {

/// One ibv_mw. The first call of free() frees it, later calls do nothing.
struct WindowRecord {
  WindowRecord(ProtectionDomain parent, ibv_mw* raw, const ibv_qp* owner) noexcept
      : domain{std::move(parent)}, pair{owner}, window_{raw} {}
  /// Errors: kProvider, for the first caller; also reported as a failed teardown.
  Status free() noexcept;
  [[nodiscard]] ibv_mw* get() noexcept;

  const ProtectionDomain domain;
  const ibv_qp* const pair;

 private:
  remora::detail::Mutex mutex_;
  ibv_mw* window_ REMORA_GUARDED_BY(mutex_);  ///< null once freed
};

/// Thread safety: all calls concurrently.
class WindowSet {
 public:
  void add(const std::shared_ptr<WindowRecord>& record);
  void free_all() noexcept;

 private:
  static constexpr std::size_t kSweepLeast = 16;
  remora::detail::Mutex mutex_;
  /// Some of the records are expired, some occur twice, until add() finds `sweep_at_` of them.
  std::vector<std::weak_ptr<WindowRecord>> records_ REMORA_GUARDED_BY(mutex_);
  std::size_t sweep_at_ REMORA_GUARDED_BY(mutex_) = kSweepLeast;
};

}  // namespace remora::verbs::detail
