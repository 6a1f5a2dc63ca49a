#pragma once

#include <remora/result.h>

#include "transport/grant.h"

namespace remora::transport {

/// Renews keys of grants that end with their lanes or their device: see
/// ServerEndpoint::use_lane_keys().
class LaneKeyRenewal {
 public:
  virtual ~LaneKeyRenewal() = default;
  /// Whether renew() registers memory of the grant, and so blocks until that memory is pinned. If
  /// true, any thread may call renew(), for several grants at a time, also while the worker calls
  /// other functions of the endpoint. Worker.
  [[nodiscard]] virtual bool registers_again(const Grant& /*grant*/) noexcept { return false; }
  /// Makes the missing keys of `grant`, one of this session's: the keys of lanes that were opened
  /// after the grant was made, or all keys if the grant has left its device. Other keys stay.
  /// Blocks as ServerEndpoint::grant() does, and until the device has answered: at most 2 s and a
  /// millisecond for each key. Worker, unless registers_again(). Errors: those of grant();
  /// kConnectionLost: a lane is about to end, which interrupts the session; kTimedOut.
  virtual Status renew(Grant& grant) noexcept = 0;
};

}  // namespace remora::transport
