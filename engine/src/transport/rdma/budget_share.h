#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

#include <remora/assert.h>
#include <remora/result.h>

#include "transport/rdma/budget.h"

namespace remora::transport::rdma {

/// A part of a budget, given back on destruction. Movable.
class BudgetShare {
 public:
  /// Takes all of `count` or nothing. Errors: kLimitExceeded, with the count that would be reached
  /// and the limit.
  [[nodiscard]] static Result<BudgetShare> take(std::shared_ptr<Budget> budget,
                                                std::uint64_t count);
  /// Counts without a check of the limit: for objects that are needed before a client can be
  /// refused.
  [[nodiscard]] static BudgetShare count(std::shared_ptr<Budget> budget,
                                         std::uint64_t count) noexcept;
  BudgetShare(BudgetShare&& other) noexcept
      : budget_{std::move(other.budget_)}, count_{std::exchange(other.count_, 0)} {}
  BudgetShare& operator=(BudgetShare&& other) noexcept;
  ~BudgetShare() { give_back(); }
  /// From now on this share also gives back `more`, which is of the same budget.
  void join(BudgetShare more) noexcept {
    REMORA_ASSERT(budget_ == more.budget_, "only shares of one budget are joined");
    count_ += std::exchange(more.count_, 0);
  }
  /// `count` of them will never be given back: they stay counted.
  void lose(std::uint64_t count) noexcept { count_ -= std::min(count_, count); }

 private:
  BudgetShare(std::shared_ptr<Budget> budget, std::uint64_t count) noexcept
      : budget_{std::move(budget)}, count_{count} {}
  void give_back() noexcept;
  std::shared_ptr<Budget> budget_;  ///< null when moved from
  std::uint64_t count_;
};

}  // namespace remora::transport::rdma
