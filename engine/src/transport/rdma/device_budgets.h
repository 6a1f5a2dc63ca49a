#pragma once

/// Limits of the registrations and windows that a server holds on its RDMA devices, and their
/// numbers.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include <remora/mutex.h>
#include <remora/result.h>

#include "transport/rdma/budget.h"

namespace remora::transport::rdma {

/// The budgets of a server: one for all of its devices if the configuration sets a limit, otherwise
/// one for each device, with the limit that the device reports. Thread-safe.
class DeviceBudgets {
 public:
  /// `configured` 0: the device's own limit. `key`: the key of the configuration, for errors.
  DeviceBudgets(Operation what, std::string_view key, std::uint64_t configured)
      : what_{what}, key_{key}, configured_{configured} {}
  [[nodiscard]] std::shared_ptr<Budget> of(std::string_view device, std::uint64_t max_device);
  /// The number in use over all devices.
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

}  // namespace remora::transport::rdma
