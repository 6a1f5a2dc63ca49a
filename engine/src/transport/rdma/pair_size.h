#pragma once

/// How large a queue pair a device gives, where it does not say so before.

#include <cstdint>
#include <functional>
#include <string_view>

#include <remora/result.h>
#include <remora/verbs/queue_pair.h>

namespace remora::transport::rdma {

/// A lane has no fewer requests than that.
inline constexpr std::uint32_t kLeastDepth = 16;

/// Calls `create(builder)` with `depth` requests and as much inline room as the device gives, and
/// with half as many requests, without inline room, as long as the device refuses the size: an
/// entry of the send queue takes what its inline room takes, and the device's own bound of requests
/// (max_qp_wr) does not say so. Returns the depth. The log says once for each device and depth that
/// the device gave less. Errors: that of the first call.
[[nodiscard]] Result<std::uint32_t> create_fitting_pair(
    verbs::QueuePairBuilder<verbs::Rc>& builder, std::uint32_t depth,
    const std::function<Status(const verbs::QueuePairBuilder<verbs::Rc>&)>& create);

}  // namespace remora::transport::rdma
