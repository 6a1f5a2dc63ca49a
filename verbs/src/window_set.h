#pragma once

/// Who has to free which windows before it goes. Internal.
///
/// A window is known to its queue pair from the start and to each registration it was bound to. The
/// first of window, pair and registration to go frees it.

#include <cstddef>
#include <infiniband/verbs.h>
#include <memory>
#include <mutex>
#include <vector>

#include <remora/verbs/protection_domain.h>

namespace remora::verbs::detail {

/// One ibv_mw, freed once, by whoever is first.
struct WindowRecord {
  WindowRecord(ProtectionDomain parent, ibv_mw* raw, const ibv_qp* owner) noexcept
      : domain{std::move(parent)}, pair{owner}, window_{raw} {}
  /// Errors: kProvider, of the first to call it; reported as a failed teardown, too.
  Status free() noexcept;
  [[nodiscard]] ibv_mw* get() noexcept;

  const ProtectionDomain domain;
  const ibv_qp* const pair;

 private:
  std::mutex mutex_;
  ibv_mw* window_;  // null once freed
};

/// Thread safety: every call, concurrently.
class WindowSet {
 public:
  void add(const std::shared_ptr<WindowRecord>& record);
  void free_all() noexcept;

 private:
  static constexpr std::size_t kSweepLeast = 16;
  std::mutex mutex_;
  std::vector<std::weak_ptr<WindowRecord>> records_;  ///< some of them gone, some there twice
  std::size_t sweep_at_ = kSweepLeast;                ///< so many: those are looked for
};

}  // namespace remora::verbs::detail
