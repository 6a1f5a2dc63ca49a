#pragma once

/// The windows that a queue pair or a registration has to free before it is destroyed. Internal.
///
/// A window is known to its queue pair from the start and to each registration it was bound to. The
/// first of window, pair and registration to go frees it.

#include <cstddef>
#include <infiniband/verbs.h>
#include <memory>
#include <vector>

#include <remora/mutex.h>
#include <remora/verbs/protection_domain.h>

namespace remora::verbs::detail {

/// One ibv_mw. The first call of free() frees it, later ones do nothing.
struct WindowRecord {
  WindowRecord(ProtectionDomain parent, ibv_mw* raw, const ibv_qp* owner) noexcept
      : domain{std::move(parent)}, pair{owner}, window_{raw} {}
  /// Errors: kProvider, of the first to call it; reported as a failed teardown, too.
  Status free() noexcept;
  [[nodiscard]] ibv_mw* get() noexcept;

  const ProtectionDomain domain;
  const ibv_qp* const pair;

 private:
  remora::detail::Mutex mutex_;
  ibv_mw* window_ REMORA_GUARDED_BY(mutex_);  ///< null once freed
};

/// Thread safety: every call, concurrently.
class WindowSet {
 public:
  void add(const std::shared_ptr<WindowRecord>& record);
  void free_all() noexcept;

 private:
  static constexpr std::size_t kSweepLeast = 16;
  remora::detail::Mutex mutex_;
  /// Some of them are expired, some occur twice, until add() finds `sweep_at_` of them.
  std::vector<std::weak_ptr<WindowRecord>> records_ REMORA_GUARDED_BY(mutex_);
  std::size_t sweep_at_ REMORA_GUARDED_BY(mutex_) = kSweepLeast;
};

}  // namespace remora::verbs::detail
