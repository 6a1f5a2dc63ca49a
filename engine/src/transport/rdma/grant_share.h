#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include <remora/result.h>

#include "transport/grant.h"
#include "transport/rdma/budget.h"
#include "transport/rdma/budget_share.h"

namespace remora::transport::rdma {

/// The budgets of a device for grants that are registrations.
struct GrantBudgets {
  std::shared_ptr<Budget> registrations;
  std::shared_ptr<Budget> bytes{};  ///< null: not counted
};

/// A grant's share of the budgets, given back on destruction.
struct GrantShare {
  BudgetShare registrations;
  std::optional<BudgetShare> bytes;
  /// A registration of `length_bytes` bytes is never released, and stays counted.
  void lose_one(std::uint64_t length_bytes) noexcept {
    registrations.lose(1);
    if (bytes) bytes->lose(length_bytes);
  }
};

/// Takes the share before the device is asked, so that one client leaves room for others. Errors:
/// kLimitExceeded.
[[nodiscard]] Result<GrantShare> take_share(const GrantBudgets& budgets,
                                            std::span<const MemoryStretch> stretches);

}  // namespace remora::transport::rdma
