#pragma once

/// The reason why a path could not be used. Internal.

#include <cstdint>

#include <remora/result.h>
#include <remora/verbs/device.h>
#include <remora/verbs/gid.h>

namespace remora::verbs::detail {

/// `error` is that of `operation`, a call that had to resolve the path from row `source_index` of
/// `port` to `destination`: returns kUnreachable with both GIDs and the reason if that failed,
/// otherwise `error`.
[[nodiscard]] Error route_error(const Device& device, const Error& error, Operation operation,
                                std::uint8_t port, std::uint32_t source_index,
                                const Gid& destination);

}  // namespace remora::verbs::detail
