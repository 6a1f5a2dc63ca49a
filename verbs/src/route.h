#pragma once

/// Why a path could not be taken. Internal.

#include <cstdint>

#include <remora/result.h>
#include <remora/verbs/device.h>
#include <remora/verbs/gid.h>

namespace remora::verbs::detail {

/// `error` of `operation`, a call that had to resolve the way from row `source_index` of `port` to
/// `destination`: kUnreachable with both GIDs and the reason where that was it, `error` where not.
[[nodiscard]] Error route_error(const Device& device, const Error& error, Operation operation,
                                std::uint8_t port, std::uint32_t source_index,
                                const Gid& destination);

}  // namespace remora::verbs::detail
