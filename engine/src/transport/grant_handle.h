#pragma once

#include <remora/result.h>

namespace remora::transport {

/// Keeps a grant valid; revokes it on destruction. Used by one thread at a time.
class GrantHandle {
 public:
  virtual ~GrantHandle() = default;
  /// Revokes the grant now, once. A registration that another grant of the same client shares
  /// stays. After an error the client may reach the memory until its lanes, and the lanes of the
  /// sessions that DeviceSession::end_sharing_sessions() ends, are destroyed. Blocks until the
  /// device has answered. Errors: kProvider (errno kept).
  virtual Status revoke() noexcept { return {}; }
  /// The device has gone: the grant releases everything there, and has no key until
  /// LaneKeyRenewal::renew() makes a new one.
  virtual void leave_device() noexcept {}
};

}  // namespace remora::transport
