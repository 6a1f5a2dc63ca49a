#pragma once

/// Which interrupt of a device tells of a queue's completions.

#include <cstdint>
#include <string_view>

#include <remora/verbs/device.h>

namespace remora::transport::rdma {

/// The vector for the device's next queue that makes events: one after the other, so that no
/// processor serves the interrupts of all queues. Of the vectors, as many are used as there are
/// processors on the device's memory node: drivers give those the first ones. Any thread.
[[nodiscard]] int next_completion_vector(const verbs::Device& device);

/// The number of processors in a list of the kernel's form: "0-3,8,10-11". 0: no such list.
[[nodiscard]] std::uint32_t count_processors(std::string_view list) noexcept;

}  // namespace remora::transport::rdma
