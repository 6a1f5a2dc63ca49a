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

/// A peer that does not answer for so long, though it should, is gone: powered off, or cut off.
inline constexpr std::chrono::seconds kPeerTimeout{20};

/// From here on the end of the connection, however it comes, takes back what has not been
/// acknowledged, and leaves the port free at once: no TIME_WAIT, of which each client would have
/// one for each connection, since it is the one to leave. False: only what is acknowledged may go
/// so. Source: tcp(7), socket(7), SO_LINGER; RFC 9293, 3.10.5, ABORT.
void set_abortive_close(int socket, bool abortive) noexcept;
/// Ends the connection that way now; the descriptor stays, and is readable.
void abort_connection(int socket) noexcept;
/// The peer's host has all that was sent.
[[nodiscard]] bool all_acknowledged(int socket) noexcept;

/// No delay for small segments; keep-alives that end the connection kPeerTimeout after its peer.
/// Source: tcp(7). Errors: kSystem.
Status prepare_socket(int socket) noexcept;

/// A connected, prepared, non-blocking socket. Errors, with the address as subject: kTimedOut,
/// kConnectionRefused, kUnreachable, kSystem.
Result<UniqueFd> connect_socket(const verbs::Address& address, Deadline deadline) noexcept;

/// All of `bytes`, waiting for room until `deadline`. After an error the stream is of no use.
/// Errors: kTimedOut, kConnectionLost, kSystem.
Status send_all(int socket, std::span<const std::byte> bytes, Deadline deadline) noexcept;
/// Moves `parts` on over `length_bytes` that have left; how many of them are used up.
std::size_t advance(iovec* parts, std::size_t length_bytes) noexcept;

/// Exactly as many as `bytes` holds. Errors: as send_all.
Status receive_all(int socket, std::span<std::byte> bytes, Deadline deadline) noexcept;

/// One message of a control channel. A message that could not leave whole ends the channel.
/// Errors: kLimitExceeded; as send_all.
Status send_message(int socket, std::span<const std::byte> message, Deadline deadline) noexcept;

/// What errno of send or recv means for a connection.
[[nodiscard]] Error connection_error(Operation operation, int system_errno) noexcept;

}  // namespace remora::transport::tcp
