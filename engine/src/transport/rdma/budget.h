#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include <remora/result.h>

namespace remora::transport::rdma {

/// A bounded count of objects, counted exactly. Thread-safe, lock-free.
class Budget {
 public:
  /// `limit` 0: no bound. `what`: the operation that is refused at the bound. `subject` tells the
  /// operator which setting to change.
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

/// The budget of region bytes that grants have registered, over all devices. `limit` 0: no bound.
[[nodiscard]] inline std::shared_ptr<Budget> registered_bytes_budget(std::uint64_t limit) {
  return std::make_shared<Budget>(Operation{"registered bytes"}, "limits.registered_bytes_max",
                                  limit);
}

}  // namespace remora::transport::rdma
