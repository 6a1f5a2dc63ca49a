#pragma once

/// Reports the state of the daemon to a service manager, by the protocol of sd_notify(3).

#include <chrono>
#include <string_view>

#include <remora/result.h>

namespace remora::apps {

/// Sends `state` ("READY=1", "STOPPING=1", "STATUS=…"; several divided by newlines) to the socket
/// that NOTIFY_SOCKET names. Does nothing without that variable. If the socket is full, it waits
/// for room, at most for `patience`; a failure is only logged. Source: sd_notify(3).
void notify_service_manager(std::string_view state,
                            std::chrono::milliseconds patience = std::chrono::milliseconds{
                                500}) noexcept;

/// Sends `state` and the descriptor `fd`; -1: no descriptor. Errors: kUnsupported: there is no
/// NOTIFY_SOCKET, or its name is none; kTimedOut (`patience`), kSystem.
Status send_to_service_manager(std::string_view state, int fd,
                               std::chrono::milliseconds patience) noexcept;

/// One message over a connected socket, with a descriptor unless `fd` is -1. Errors: kTimedOut,
/// kSystem.
Status send_with_descriptor(int socket, std::string_view text, int fd,
                            std::chrono::milliseconds patience) noexcept;

}  // namespace remora::apps
