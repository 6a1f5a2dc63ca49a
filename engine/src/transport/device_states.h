#pragma once

/// What a server does with each RDMA device of its host: for `/status`, `/readyz` and metrics.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <remora/metrics/registry.h>
#include <remora/mutex.h>
#include <remora/result.h>

namespace remora::transport {

/// What keeps the clients of one server apart on an RDMA device: for logs and status.
struct DeviceProtection {
  struct Check {
    std::string name;
    std::string verdict;  ///< "kept", "broken", "untested"
    std::string reason;
  };
  std::string device{};
  std::string mechanism{};      ///< "registrations", "windows"
  std::string reason{};         ///< why that one
  std::vector<Check> checks{};  ///< of the device's windows; empty: not asked
  /// Windows were left because they could not be tested: the operator can mend that.
  bool worth_a_warning = false;
};

enum class DeviceUse : std::uint8_t {
  kServing,
  kLeftOut,  ///< it cannot serve, or the configuration leaves it out
  kGone,     ///< it has served; the host has it no longer, and the server looks for it
};
[[nodiscard]] std::string_view to_string(DeviceUse use) noexcept;

struct DeviceState {
  std::string device{};
  DeviceUse use = DeviceUse::kServing;
  std::string reason{};           ///< why it does not serve
  bool atomics = false;           ///< it carries out atomics, so it is an atomic domain
  DeviceProtection protection{};  ///< where it serves
  /// Numeric ones, by which clients reach the device, where the server listens on all of them.
  std::vector<std::string> addresses{};
};

/// Of `remora_server_rdma_device_serving`.
inline constexpr std::string_view kServingHelp =
    "1: clients can connect over the RDMA device; 0: it is left out, or it has gone.";

/// The states of all devices. Thread-safe; shared by a listener, which changes it, and by reports.
class DeviceStates {
 public:
  /// Exports `remora_server_rdma_device_serving` and `remora_server_rdma_device_losses_total`.
  explicit DeviceStates(std::shared_ptr<metrics::Registry> registry)
      : registry_{std::move(registry)} {}

  /// Logs a change, and counts a loss.
  void set(DeviceState state);
  /// Of a device that is known. set() leaves the addresses as they are while it serves.
  void set_addresses(std::string_view device, std::vector<std::string> addresses);
  [[nodiscard]] std::vector<DeviceState> list() const;

 private:
  void show(const DeviceState& state, bool lost) noexcept;
  const std::shared_ptr<metrics::Registry> registry_;
  mutable remora::detail::Mutex mutex_;
  std::map<std::string, DeviceState, std::less<>> states_ REMORA_GUARDED_BY(mutex_);
};

}  // namespace remora::transport
