#pragma once

/// Sockets of the tcp transport: connecting within a deadline, and sending the messages of a
/// control channel.

#include <cstddef>
#include <span>
#include <sys/uio.h>

#include <remora/result.h>
#include <remora/verbs/address.h>

#include "base/clock.h"
#include "base/unique_fd.h"
#include "transport/control_message.h"
#include "transport/tcp/wire.h"

namespace remora::transport::tcp {

/// The time after which a peer that does not answer counts as gone: powered off, or cut off.
inline constexpr std::chrono::seconds kPeerTimeout{20};

/// From here on, when the connection ends in any way, bytes that are not acknowledged are
/// discarded, and the port is free at once. Without this each client would leave a port in
/// TIME_WAIT for each connection, since the client closes first. False: only a connection whose
/// bytes are all acknowledged ends this way. Source: tcp(7), socket(7), SO_LINGER; RFC 9293,
/// 3.10.5, ABORT.
void set_abortive_close(int socket, bool abortive) noexcept;
/// Ends the connection in this way now; the descriptor stays open, and is readable.
void abort_connection(int socket) noexcept;
/// Whether the peer's host has received all bytes that were sent.
[[nodiscard]] bool all_acknowledged(int socket) noexcept;

/// No delay for small segments; keep-alives that end the connection kPeerTimeout after its peer has
/// gone. Source: tcp(7). Errors: kSystem.
Status prepare_socket(int socket) noexcept;

/// Returns a connected, prepared, non-blocking socket. Errors, with the address as subject:
/// kTimedOut, kConnectionRefused, kUnreachable, kSystem.
Result<UniqueFd> connect_socket(const verbs::Address& address, Deadline deadline) noexcept;

/// Sends all of `bytes`, waiting for room until `deadline`. After an error the stream cannot be
/// used any more. Errors: kTimedOut, kConnectionLost, kSystem.
Status send_all(int socket, std::span<const std::byte> bytes, Deadline deadline) noexcept;
/// Advances `parts` over `length_bytes` bytes that were sent; returns how many parts are used up.
std::size_t advance(iovec* parts, std::size_t length_bytes) noexcept;

/// Receives exactly as many bytes as `bytes` holds. Errors: as send_all.
Status receive_all(int socket, std::span<std::byte> bytes, Deadline deadline) noexcept;

/// Sends one message of a control channel. A message that was sent in part ends the channel.
/// Errors: kLimitExceeded; as send_all.
Status send_message(int socket, std::span<const std::byte> message, Deadline deadline) noexcept;

/// The error of a connection for an errno of send or recv.
[[nodiscard]] Error connection_error(Operation operation, int system_errno) noexcept;

}  // namespace remora::transport::tcp
