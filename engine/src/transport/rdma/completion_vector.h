#pragma once

/// The choice of the interrupt (completion vector) by which a device reports a queue's completions.

#include <cstdint>
#include <string_view>

#include <remora/verbs/device.h>

namespace remora::transport::rdma {

/// The vector for the device's next queue that makes events. Calls return the vectors in turn, so
/// that no processor serves the interrupts of all queues. As many vectors are used as there are
/// processors on the device's memory node: drivers give those processors the first vectors. Any
/// thread.
[[nodiscard]] int next_completion_vector(const verbs::Device& device);

/// The number of processors in a list in the kernel's format: "0-3,8,10-11". 0: not such a list.
[[nodiscard]] std::uint32_t count_processors(std::string_view list) noexcept;

}  // namespace remora::transport::rdma
