#pragma once

/// The size of a queue pair that a device accepts, found by trying.

#include <cstdint>
#include <functional>
#include <string_view>

#include <remora/result.h>
#include <remora/verbs/queue_pair.h>

namespace remora::transport::rdma {

/// The fewest requests that a lane has room for.
inline constexpr std::uint32_t kLeastDepth = 16;

/// Calls `create(builder)` with `depth` requests and as much inline room as the device gives; while
/// the device refuses the size, calls it again with half as many requests and without inline room.
/// A queue entry grows with its inline room, which the device's limit of requests (max_qp_wr) does
/// not tell. Returns the depth. The log says once for each device and depth that the device gave
/// less. Errors: that of the first call.
[[nodiscard]] Result<std::uint32_t> create_fitting_pair(
    verbs::QueuePairBuilder<verbs::Rc>& builder, std::uint32_t depth,
    const std::function<Status(const verbs::QueuePairBuilder<verbs::Rc>&)>& create);

}  // namespace remora::transport::rdma
