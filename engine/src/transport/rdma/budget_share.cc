#include "transport/rdma/budget_share.h"

#include <remora/assert.h>

namespace remora::transport::rdma {

Result<BudgetShare> BudgetShare::take(std::shared_ptr<Budget> budget, std::uint64_t count) {
  if (auto status = budget->take(count); !status) return status.error();
  return BudgetShare{std::move(budget), count};
}

BudgetShare BudgetShare::count(std::shared_ptr<Budget> budget, std::uint64_t count) noexcept {
  budget->used_.fetch_add(count);
  return {std::move(budget), count};
}

BudgetShare& BudgetShare::operator=(BudgetShare&& other) noexcept {
  if (this == &other) return *this;
  give_back();
  budget_ = std::move(other.budget_);
  count_ = std::exchange(other.count_, 0);
  return *this;
}

void BudgetShare::give_back() noexcept {
  if (budget_ != nullptr) {
    [[maybe_unused]] const std::uint64_t before = budget_->used_.fetch_sub(count_);
    REMORA_ASSERT(before >= count_, "a share is part of what its budget counts");
  }
  budget_.reset();
}

}  // namespace remora::transport::rdma
