#pragma once

/// What a session has on RDMA devices beside its channel.

#include <string_view>

#include <remora/config/secret_key.h>

#include "transport/device_failure.h"

namespace remora::transport {

/// The registrations of a session, the devices of its lanes, and the loss of one: see
/// ServerEndpoint::device_session(). Threads: as the functions of ServerEndpoint.
class DeviceSession {
 public:
  virtual ~DeviceSession() = default;
  /// The client has proven `key` as `name`. Its sessions share registrations, but for those with
  /// rails. After use_rails(), before ServerEndpoint::take_over(), any grant and any lane. Worker.
  virtual void join_client(std::string_view name, const config::SecretKey& key) noexcept = 0;
  /// Lanes of this session, and connections that resume it, may be of any device that serves: its
  /// grants are registered with each device that it has a lane on. After
  /// ServerEndpoint::use_lane_keys(), before join_client(). Worker. False: not over this device.
  virtual bool use_rails() noexcept = 0;
  /// A grant could not be revoked. Ends the lanes of all sessions that can use what it has left,
  /// and blocks until they are destroyed. None of these sessions can be resumed. Worker.
  virtual void end_sharing_sessions() noexcept = 0;
  /// Whether the failure is of this client's lanes or channel, which are of no use then. Control
  /// thread.
  [[nodiscard]] virtual bool hit_by(const DeviceFailure& failure) noexcept = 0;
  /// The device has gone. Any thread.
  [[nodiscard]] virtual bool device_gone() noexcept = 0;
  /// Gives back all that is left on a device that has gone. The channel and the lanes have ended.
  /// Idempotent; worker.
  virtual void leave_device() noexcept = 0;
};

}  // namespace remora::transport
