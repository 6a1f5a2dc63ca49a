#pragma once

/// How many registrations and windows a server may hold on its RDMA devices, and how many it holds.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <remora/mutex.h>
#include <remora/result.h>

namespace remora::transport::rdma {

/// A number of things that may be had at once, counted exactly. Thread-safe, lock-free.
class Budget {
 public:
  /// `limit` 0: no bound. `what`: the operation that is refused. `subject` says what to change.
  Budget(Operation what, std::string subject, std::uint64_t limit)
      : what_{what}, subject_{std::move(subject)}, limit_{limit} {}

  [[nodiscard]] std::uint64_t used() const noexcept { return used_.load(); }
  [[nodiscard]] std::uint64_t limit() const noexcept { return limit_; }

 private:
  friend class BudgetShare;
  Status take(std::uint64_t count) noexcept;
  const Operation what_;
  const std::string subject_;
  const std::uint64_t limit_;
  std::atomic<std::uint64_t> used_{0};
};

/// Some of a budget, given back on destruction. Movable.
class BudgetShare {
 public:
  /// All of it or nothing. Errors: kLimitExceeded, with what would be had and what may be.
  [[nodiscard]] static Result<BudgetShare> take(std::shared_ptr<Budget> budget,
                                                std::uint64_t count);
  /// Counts without a look at the limit: for what is needed before a client can be refused.
  [[nodiscard]] static BudgetShare count(std::shared_ptr<Budget> budget,
                                         std::uint64_t count) noexcept;
  BudgetShare(BudgetShare&& other) noexcept
      : budget_{std::move(other.budget_)}, count_{std::exchange(other.count_, 0)} {}
  BudgetShare& operator=(BudgetShare&& other) noexcept;
  ~BudgetShare() { give_back(); }
  /// `more`, of the same budget, is given back with this one.
  void join(BudgetShare more) noexcept { count_ += std::exchange(more.count_, 0); }
  /// So many of them will never be given back: they stay counted.
  void lose(std::uint64_t count) noexcept { count_ -= std::min(count_, count); }

 private:
  BudgetShare(std::shared_ptr<Budget> budget, std::uint64_t count) noexcept
      : budget_{std::move(budget)}, count_{count} {}
  void give_back() noexcept;
  std::shared_ptr<Budget> budget_;  ///< null when moved from
  std::uint64_t count_;
};

/// The budgets of a server: one for all of its devices where the configuration says how many, else
/// one for each, of as many as the device says. Thread-safe.
class DeviceBudgets {
 public:
  /// `configured` 0: what the device can do. `key`: the configuration's, for errors.
  DeviceBudgets(Operation what, std::string_view key, std::uint64_t configured)
      : what_{what}, key_{key}, configured_{configured} {}
  [[nodiscard]] std::shared_ptr<Budget> of(std::string_view device, std::uint64_t max_device);
  /// Over all devices.
  [[nodiscard]] std::uint64_t used() const;

 private:
  const Operation what_;
  const std::string key_;
  const std::uint64_t configured_;
  mutable remora::detail::Mutex mutex_;
  std::map<std::string, std::shared_ptr<Budget>, std::less<>> budgets_ REMORA_GUARDED_BY(mutex_);
};

class RegistrationBudgets : public DeviceBudgets {
 public:
  explicit RegistrationBudgets(std::uint64_t configured)
      : DeviceBudgets{"registrations", "limits.registrations_max", configured} {}
};

class WindowBudgets : public DeviceBudgets {
 public:
  explicit WindowBudgets(std::uint64_t configured)
      : DeviceBudgets{"memory windows", "limits.windows_max", configured} {}
};

/// Of the bytes of regions that grants have registered, over all devices. `limit` 0: no bound.
[[nodiscard]] inline std::shared_ptr<Budget> registered_bytes_budget(std::uint64_t limit) {
  return std::make_shared<Budget>(Operation{"registered bytes"}, "limits.registered_bytes_max",
                                  limit);
}

}  // namespace remora::transport::rdma
