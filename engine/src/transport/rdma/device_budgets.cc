#include "transport/rdma/device_budgets.h"

namespace remora::transport::rdma {

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
