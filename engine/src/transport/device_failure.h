#pragma once

#include <cstdint>
#include <string>

namespace remora::transport {

/// A device reports a failed queue pair or a failed completion queue. Neither is set: the whole
/// device has failed.
struct DeviceFailure {
  std::string device{};
  std::uint32_t queue_pair = 0;  ///< number
  const void* queue = nullptr;   ///< completion queue
};

}  // namespace remora::transport
