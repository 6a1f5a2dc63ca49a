#pragma once

#include <cstdint>
#include <string>

namespace remora::transport {

/// A device reports that something of it has failed. Neither queue: the whole device.
struct DeviceFailure {
  std::string device{};
  std::uint32_t queue_pair = 0;  ///< number
  const void* queue = nullptr;   ///< completion queue
};

}  // namespace remora::transport
