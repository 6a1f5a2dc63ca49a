#include "transport/rdma/leaving_devices.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/log.h"

namespace remora::transport::rdma {

namespace {

std::int64_t whole_milliseconds(Clock::duration time) noexcept {
  return std::chrono::duration_cast<std::chrono::milliseconds>(time).count();
}

}  // namespace

void LeavingDevices::add(const verbs::Device& device, const Reaper& reaper) {
  leaving_.push_back(
      {std::string{device.name()}, device.observe(), Clock::now(), reaper.destroying()});
}

void LeavingDevices::look(const Reaper& reaper) {
  std::erase_if(leaving_, [&reaper](const Leaving& each) {
    if (!each.device.expired()) return false;
    const Clock::duration took = Clock::now() - each.found_at;
    // Two threads destroy objects, also those of other devices.
    const Clock::duration by_driver =
        std::min<Clock::duration>(reaper.destroying() - each.destroying, took);
    log::info(
        {"device.given_back", "device took_ms driver_ms"},
        "rdma: {} is given back, {} ms after it was found to be gone, {} of them in its driver",
        each.name, whole_milliseconds(took), whole_milliseconds(by_driver));
    return true;
  });
}

}  // namespace remora::transport::rdma
