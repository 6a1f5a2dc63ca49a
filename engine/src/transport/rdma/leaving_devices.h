#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <remora/verbs/device.h>

#include "base/clock.h"
#include "transport/rdma/reaper.h"

namespace remora::transport::rdma {

/// Devices that have gone and that this process has not given back yet: until then the removal of
/// their driver may wait. Tells in the log when the last object of a device has gone. Not
/// thread-safe.
class LeavingDevices {
 public:
  /// `device` is found to be gone. `reaper`: destroys the objects that are left on it.
  void add(const verbs::Device& device, const Reaper& reaper);
  /// Call it regularly, with the same reaper.
  void look(const Reaper& reaper);

 private:
  struct Leaving {
    std::string name;
    std::weak_ptr<const void> device;
    Clock::time_point found_at;
    std::chrono::nanoseconds destroying;  ///< of the reaper, at that time
  };
  std::vector<Leaving> leaving_;
};

}  // namespace remora::transport::rdma
