#pragma once

/// The devices of a listener while its server runs.

#include <functional>
#include <stop_token>
#include <vector>

#include "transport/device_failure.h"

namespace remora::transport {

/// Follows devices that fail, go and return: see Listener::device_watch(). Called by the control
/// thread.
class DeviceWatch {
 public:
  virtual ~DeviceWatch() = default;
  /// Called ten times a second. The result, if there is one, is called by another thread, also
  /// after the listener has been destroyed; it **blocks** for as long as memory is registered,
  /// which `stop` ends between two pieces.
  [[nodiscard]] virtual std::function<void()> tick(const std::stop_token& stop) noexcept = 0;
  /// Failures since the last call, for DeviceSession::hit_by().
  [[nodiscard]] virtual std::vector<DeviceFailure> take_failures() noexcept = 0;
};

}  // namespace remora::transport
