#pragma once

/// The state of each RDMA device of the host: for `/status`, `/readyz` and metrics.

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

/// The mechanism that isolates the clients of one server from each other on an RDMA device: for
/// logs and status.
struct DeviceProtection {
  struct Check {
    std::string name;
    std::string verdict;  ///< "kept", "broken", "untested"
    std::string reason;
  };
  std::string device{};
  std::string mechanism{};      ///< "registrations", "windows"
  std::string reason{};         ///< why this mechanism was chosen
  std::vector<Check> checks{};  ///< of the device's memory windows; empty: not tested
  /// True: windows are not used because they could not be tested, which the operator can correct.
  bool worth_a_warning = false;
};

enum class DeviceUse : std::uint8_t {
  kServing,
  kLeftOut,  ///< it cannot serve, or the configuration leaves it out
  kGone,     ///< it has served and has gone; the server looks for it
};
[[nodiscard]] std::string_view to_string(DeviceUse use) noexcept;

struct DeviceState {
  std::string device{};
  DeviceUse use = DeviceUse::kServing;
  std::string reason{};           ///< why it does not serve
  bool atomics = false;           ///< it carries out atomics, so it is an atomic domain
  DeviceProtection protection{};  ///< set when it serves
  /// Numeric addresses by which clients reach the device, when the server listens on all addresses.
  std::vector<std::string> addresses{};
};

/// Help text of `remora_server_rdma_device_serving`.
inline constexpr std::string_view kServingHelp =
    "1: clients can connect over the RDMA device; 0: it is left out, or it has gone.";

/// The states of all devices. Thread-safe; the listener changes it, reports read it.
class DeviceStates {
 public:
  /// Exports `remora_server_rdma_device_serving` and `remora_server_rdma_device_losses_total`.
  explicit DeviceStates(std::shared_ptr<metrics::Registry> registry)
      : registry_{std::move(registry)} {}

  /// Logs a change, and counts a loss.
  void set(DeviceState state);
  /// Sets the addresses of a known device. set() keeps the addresses of a device that serves.
  void set_addresses(std::string_view device, std::vector<std::string> addresses);
  [[nodiscard]] std::vector<DeviceState> list() const;

 private:
  void show(const DeviceState& state, bool lost) noexcept;
  const std::shared_ptr<metrics::Registry> registry_;
  mutable remora::detail::Mutex mutex_;
  std::map<std::string, DeviceState, std::less<>> states_ REMORA_GUARDED_BY(mutex_);
};

}  // namespace remora::transport
