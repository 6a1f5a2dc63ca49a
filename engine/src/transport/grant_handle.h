#pragma once

#include <remora/result.h>

namespace remora::transport {

/// Keeps a grant valid; revokes it on destruction. Used by one thread at a time.
class GrantHandle {
 public:
  virtual ~GrantHandle() = default;
  /// Revokes the grant now, once. Where another grant of the same client shares its registration,
  /// that stays. After an error the client may reach the memory for as long as its lanes exist, and
  /// those of its sessions that DeviceSession::end_sharing_sessions() ends. Blocks until the
  /// device has answered. Errors: kProvider (errno kept).
  virtual Status revoke() noexcept { return {}; }
  /// The device has gone: the grant gives back what it has there, and has no key until
  /// LaneKeyRenewal::renew() makes it anew.
  virtual void leave_device() noexcept {}
};

}  // namespace remora::transport
