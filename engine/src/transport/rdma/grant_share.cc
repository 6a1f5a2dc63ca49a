#include "transport/rdma/grant_share.h"

#include <utility>

namespace remora::transport::rdma {

Result<GrantShare> take_share(const GrantBudgets& budgets,
                              std::span<const MemoryStretch> stretches) {
  auto registrations = BudgetShare::take(budgets.registrations, stretches.size());
  if (!registrations) return registrations.error();
  std::optional<BudgetShare> bytes;
  if (budgets.bytes != nullptr) {
    std::uint64_t sum = 0;
    for (const MemoryStretch& stretch : stretches) sum += stretch.length_bytes;
    auto share = BudgetShare::take(budgets.bytes, sum);
    if (!share) return share.error();
    bytes.emplace(std::move(*share));
  }
  return GrantShare{std::move(*registrations), std::move(bytes)};
}

}  // namespace remora::transport::rdma
