#include "transport/rdma/budget.h"

#include <remora/assert.h>

namespace remora::transport::rdma {

Status Budget::take(std::uint64_t count) noexcept {
  std::uint64_t used = used_.load();
  do {
    if (limit_ != 0 && (used > limit_ || count > limit_ - used))
      return Error{Code::kLimitExceeded, what_}.with_subject(subject_).with_limit(used + count,
                                                                                  limit_);
  } while (!used_.compare_exchange_weak(used, used + count));
  return {};
}

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

std::shared_ptr<Budget> DeviceBudgets::of(std::string_view device, std::uint64_t max_device) {
  const std::string_view key = configured_ != 0 ? std::string_view{} : device;
  const remora::detail::MutexLock lock{mutex_};
  if (const auto found = budgets_.find(key); found != budgets_.end()) return found->second;
  auto made = configured_ != 0 ? std::make_shared<Budget>(what_, key_, configured_)
                               : std::make_shared<Budget>(
                                     what_, "what " + std::string{device} + " can do", max_device);
  budgets_.emplace(std::string{key}, made);
  return made;
}

std::uint64_t DeviceBudgets::used() const {
  const remora::detail::MutexLock lock{mutex_};
  std::uint64_t sum = 0;
  for (const auto& [device, budget] : budgets_) sum += budget->used();
  return sum;
}

}  // namespace remora::transport::rdma
