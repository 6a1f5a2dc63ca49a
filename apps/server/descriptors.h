#pragma once

/// As many descriptors as the clients that a configuration admits need.

#include <cstdint>

#include <remora/config/server_config.h>

namespace remora::apps {

/// Descriptors of a server with all the clients that its limits let in, each with one lane: over
/// rdma three for each connection, a session's and a lane's; over the other transports no more.
[[nodiscard]] std::uint64_t descriptors_needed(const config::Limits& limits) noexcept;

/// Raises this process's limit of open files to what it may be (`ulimit -Hn`): the usual soft limit
/// of 1,024 is for programs that call select(). Warns where that is too little for `limits`.
void raise_descriptor_limit(const config::Limits& limits);

}  // namespace remora::apps
