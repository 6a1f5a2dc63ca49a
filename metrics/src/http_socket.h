#pragma once

/// Sockets whose every wait ends at a deadline or when the endpoint stops.

#include <chrono>
#include <cstddef>
#include <cstdint>

#include <remora/result.h>

#include "descriptor.h"
#include "socket_address.h"
#include "stop_signal.h"

namespace remora::metrics {

using Deadline = std::chrono::steady_clock::time_point;

/// The longest request that is read.
inline constexpr std::size_t kRequestBytesMax = std::size_t{16} << 10;

enum class Wait { kReady, kTimedOut, kStopped };

/// Waits for `events` (poll(2)) on `fd`; fd -1: waits only for the deadline.
Wait wait_for(int fd, std::int16_t events, const StopSignal& stop, Deadline deadline) noexcept;

/// Listens on `address`, non-blocking, and writes back the port it got. Errors: kAddressInUse,
/// kPermissionDenied, kUnreachable, kUnsupported (the host has no IPv6), kSystem.
Result<Descriptor> listen_on(SocketAddress& address);

}  // namespace remora::metrics
