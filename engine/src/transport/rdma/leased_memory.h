#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <vector>

#include <remora/result.h>
#include <remora/verbs/access.h>
#include <remora/verbs/device.h>
#include <remora/verbs/memory_region.h>
#include <remora/verbs/protection_domain.h>

#include "transport/grant.h"
#include "transport/rdma/budget.h"
#include "transport/rdma/budget_share.h"

namespace remora::transport::rdma {

/// The memory to which windows are bound: a part of a registration, which outlives them.
struct LeasedRange {
  const verbs::MemoryRegion* memory = nullptr;
  std::uint64_t offset_bytes = 0;
  std::uint64_t length_bytes = 0;
  [[nodiscard]] std::uint64_t address() const noexcept { return memory->address() + offset_bytes; }
};

/// The pool's pieces on one device, registered for windows. Thread-safe.
class LeasedMemory {
 public:
  /// The access of memory to which windows are bound.
  static constexpr verbs::Access kAccess = verbs::Access::kLocalWrite | verbs::Access::kWindowBind;
  struct Budgets {
    std::shared_ptr<Budget> registrations;
    std::shared_ptr<Budget> windows;
    std::shared_ptr<Budget> bytes{};  ///< of the grants' own registrations; null: not counted
  };
  /// Registers `pieces`. `hold` keeps their bytes, and is released after the registrations.
  /// **Blocks** while they are pinned; `stop` ends it between two pieces. The calling thread calls
  /// `on_step` with the number of registered bytes. Errors: kOutOfMemory (see Reason::kMemlock),
  /// kLimitExceeded, kProvider, kCancelled (`stop`).
  [[nodiscard]] static Result<std::shared_ptr<const LeasedMemory>> create(
      const verbs::Device& device, std::span<const MemoryStretch> pieces,
      std::shared_ptr<void> hold, Budgets budgets, const std::stop_token& stop = {},
      const std::function<void(std::uint64_t done_bytes)>& on_step = {});

  /// The domain of all lanes whose grants are windows.
  [[nodiscard]] const verbs::ProtectionDomain& domain() const noexcept { return domain_; }
  /// The part of a registration that contains `stretch`; empty: it is not within one piece, but a
  /// region's own memory.
  [[nodiscard]] std::optional<LeasedRange> find(const MemoryStretch& stretch) const noexcept;
  /// Whether find() finds each of them: a grant of them needs no registration.
  [[nodiscard]] bool covers(std::span<const MemoryStretch> stretches) const noexcept;
  [[nodiscard]] const Budgets& budgets() const noexcept { return budgets_; }

 private:
  LeasedMemory(std::shared_ptr<void> hold, verbs::ProtectionDomain domain, Budgets budgets,
               BudgetShare share, std::vector<verbs::MemoryRegion> pieces) noexcept;
  std::shared_ptr<void> hold_;  // destroyed last
  verbs::ProtectionDomain domain_;
  Budgets budgets_;
  BudgetShare share_;
  std::vector<verbs::MemoryRegion> pieces_;  ///< by address
};

}  // namespace remora::transport::rdma
