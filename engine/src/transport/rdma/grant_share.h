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

/// What grants that are registrations may take of a device.
struct GrantBudgets {
  std::shared_ptr<Budget> registrations;
  std::shared_ptr<Budget> bytes{};  ///< null: not counted
};

/// What the budgets have admitted, given back on destruction.
struct GrantShare {
  BudgetShare registrations;
  std::optional<BudgetShare> bytes;
  /// A registration of so many bytes stays for good.
  void lose_one(std::uint64_t length_bytes) noexcept {
    registrations.lose(1);
    if (bytes) bytes->lose(length_bytes);
  }
};

/// Before the device is asked: what others need is left to them. Errors: kLimitExceeded.
[[nodiscard]] Result<GrantShare> take_share(const GrantBudgets& budgets,
                                            std::span<const MemoryStretch> stretches);

}  // namespace remora::transport::rdma
