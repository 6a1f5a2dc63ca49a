#pragma once

#include <remora/result.h>

#include "transport/grant.h"

namespace remora::transport {

/// Keys of grants that end with their lanes or their device: see ServerEndpoint::use_lane_keys().
class LaneKeyRenewal {
 public:
  virtual ~LaneKeyRenewal() = default;
  /// Whether renew() has memory of the grant registered, and so blocks for as long as that is
  /// pinned. Any thread may call it then, for several grants at a time, also while the worker calls
  /// other functions of the endpoint. Worker.
  [[nodiscard]] virtual bool registers_again(const Grant& /*grant*/) noexcept { return false; }
  /// Makes the missing keys of `grant`, one of this session's: those of lanes that were opened
  /// after it was made, or all where the grant has left its device. Other keys stay. Blocks as
  /// ServerEndpoint::grant() does, and for as long as the device takes, 2 s at most and a
  /// millisecond for each key. Worker, unless registers_again(). Errors: those of grant();
  /// kConnectionLost: a lane is about to end, which interrupts the session; kTimedOut.
  virtual Status renew(Grant& grant) noexcept = 0;
};

}  // namespace remora::transport
