#pragma once

/// The RDMA devices of one session, beside its control channel.

#include <string_view>

#include <remora/config/secret_key.h>

#include "transport/device_failure.h"

namespace remora::transport {

/// The registrations of a session, the devices of its lanes, and the loss of one: see
/// ServerEndpoint::device_session(). Threads: as the functions of ServerEndpoint.
class DeviceSession {
 public:
  virtual ~DeviceSession() = default;
  /// The client has proven `key` under the name `name`. All its sessions without rails share
  /// registrations. Called after use_rails(), before ServerEndpoint::take_over(), any grant and any
  /// lane. Worker.
  virtual void join_client(std::string_view name, const config::SecretKey& key) noexcept = 0;
  /// Lanes of this session, and connections that resume it, may use any device that serves: its
  /// grants are registered with each device on which it has a lane. Called after
  /// ServerEndpoint::use_lane_keys(), before join_client(). Worker. False: this device cannot be a
  /// rail.
  virtual bool use_rails() noexcept = 0;
  /// Called when a grant could not be revoked. Ends the lanes of all sessions that can use a
  /// registration that the grant has left, and blocks until they are destroyed. None of these
  /// sessions can be resumed. Worker.
  virtual void end_sharing_sessions() noexcept = 0;
  /// Whether the failure concerns a lane or the channel of this client, which then cannot be used
  /// any more. Control thread.
  [[nodiscard]] virtual bool hit_by(const DeviceFailure& failure) noexcept = 0;
  /// Whether the session's device has gone. Any thread.
  [[nodiscard]] virtual bool device_gone() noexcept = 0;
  /// Releases everything that is left on a device that has gone. The channel and the lanes have
  /// ended. Idempotent; worker.
  virtual void leave_device() noexcept = 0;
};

}  // namespace remora::transport
