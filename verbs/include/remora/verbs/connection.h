#pragma once

/// Connection: a queue pair that the connection manager (librdmacm) connects and watches.
///
/// Each connection has an event channel of its own, non-blocking: one epoll thread can serve many
/// connections, and none waits for another. Clients begin with a `Connector` (connector.h), servers
/// with a `ConnectionListener` (listener.h).
///
/// No function waits longer than its deadline, even when the peer stays silent (librdmacm itself
/// then never answers): after the deadline the connection is destroyed, which takes milliseconds at
/// any point. The queue pair is destroyed first, then the id, then the event channel, in whatever
/// order the owner destroys its objects.
///
/// Thread safety: one thread at a time for each connection, except that other threads may post to
/// its queue pair.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <ostream>
#include <rdma/rdma_cma.h>
#include <span>
#include <string_view>

#include <remora/result.h>
#include <remora/verbs/address.h>
#include <remora/verbs/deadline.h>
#include <remora/verbs/device.h>
#include <remora/verbs/format.h>
#include <remora/verbs/gid.h>
#include <remora/verbs/queue_pair.h>

namespace remora::verbs {

/// The bounds of private data that the connection manager carries, over RC. Source:
/// rdma_connect(3), rdma_accept(3), rdma_reject(3).
inline constexpr std::size_t kMaxConnectDataBytes = 56;
inline constexpr std::size_t kMaxAcceptDataBytes = 196;
inline constexpr std::size_t kMaxRejectDataBytes = 148;

/// Private data that came with an event. InfiniBand and RoCE deliver the whole field, padded with
/// zeros: `bytes()` is usually longer than the peer's data, so a message must contain its length.
class PrivateData {
 public:
  /// No data.
  PrivateData() noexcept = default;
  /// Copies at most 255 bytes.
  PrivateData(const void* bytes, std::size_t length_bytes) noexcept
      : length_bytes_{static_cast<std::uint8_t>(
            bytes == nullptr ? 0 : std::min(length_bytes, bytes_.size()))} {
    if (length_bytes_ != 0) std::memcpy(bytes_.data(), bytes, length_bytes_);
  }
  /// As long as the field that arrived; valid as long as this object.
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept {
    return {bytes_.data(), length_bytes_};
  }

 private:
  std::array<std::byte, 255> bytes_{};
  std::uint8_t length_bytes_ = 0;
};

/// An event of the connection manager. Source: rdma_get_cm_event(3).
struct ConnectionEvent {
  /// The events. After kDisconnected, kDeviceRemoved or a failure the connection is over.
  enum class Kind : std::uint8_t {
    kEstablished,     ///< both sides may post; private_data is the acceptor's (client side)
    kRejected,        ///< refused by the peer, or no listener; private_data is the peer's
    kUnreachable,     ///< no answer within the kernel's own time-out, or no route
    kConnectError,    ///< the local side failed while connecting
    kDisconnected,    ///< the peer is gone; the queue pair has been moved to ERR
    kDeviceRemoved,   ///< the device is going; the queue pair has been moved to ERR. Destroy all.
    kAddressChanged,  ///< the network changed below the connection, which may still work
    kTimeWaitExit,    ///< the queue pair number may be reused; no action needed
    kOther,           ///< an event that this class does not know
  };
  Kind kind = Kind::kOther;
  /// kRejected: the connection manager's reason (28: the application has refused; 8: no listener).
  /// Others: a negative errno, or 0.
  int status = 0;
  PrivateData private_data;

  /// Rejected because the peer's connection manager still has the queue pair's number, from an
  /// earlier connection: it forgets that connection, and may accept a new attempt.
  [[nodiscard]] bool stale() const noexcept {
    constexpr int kStaleConnection = 10;  // of InfiniBand's reject reasons
    return kind == Kind::kRejected && status == kStaleConnection;
  }
  /// For kRejected (kConnectionRefused), kUnreachable (kUnreachable, or kTimedOut), kConnectError
  /// (kProvider), kDisconnected and kDeviceRemoved (kConnectionLost). Others: kInternal.
  [[nodiscard]] Error error(const Address& peer) const;
};
/// "established", "time-wait exit" and so on.
[[nodiscard]] std::string_view to_string(ConnectionEvent::Kind kind) noexcept;
/// "rejected (status 28)".
std::ostream& operator<<(std::ostream& out, const ConnectionEvent& event);

/// Parameters of either side of a connection.
struct ConnectionOptions {
  /// Borrowed for the call only. At most kMaxConnectDataBytes or kMaxAcceptDataBytes.
  std::span<const std::byte> private_data{};
};

namespace detail {
struct ConnectionState;
}

/// Move-only. It may be destroyed at any point; a connected one is disconnected by that.
class Connection {
 public:
  Connection(Connection&&) noexcept;
  Connection& operator=(Connection&&) noexcept;
  ~Connection();

  /// Non-blocking; readable when an event waits. Borrowed: for poll and epoll only.
  [[nodiscard]] int event_fd() const noexcept;

  /// Takes one event; empty: none waits. The function acknowledges the event. When the peer's
  /// answer comes, it brings a client's queue pair to RTS: call it until kEstablished. On
  /// kDisconnected it moves the queue pair to ERR, so that posted requests are flushed. Errors:
  /// kProvider (errno kept), kConnectionLost (the peer has gone, so its answer is useless).
  [[nodiscard]] Result<std::optional<ConnectionEvent>> next_event();
  /// next_event(), waiting for one. **Blocks.** Errors: kTimedOut; kProvider, kSystem (errno kept).
  [[nodiscard]] Result<ConnectionEvent> wait_event(Deadline deadline);
  /// Waits for kEstablished; returns at once if that event has come. **Blocks.** Errors: as
  /// ConnectionEvent::error; kTimedOut; kProvider, kSystem (errno kept).
  Status wait_established(Deadline deadline);
  /// Whether kEstablished has come and the connection has not ended since: see failure().
  [[nodiscard]] bool established() const noexcept;
  /// The event that ended the connection, with the private data of a reject; empty while it lives.
  [[nodiscard]] const std::optional<ConnectionEvent>& failure() const noexcept;

  /// The address of the queue pair is stable for the connection's life, also when the connection is
  /// moved.
  [[nodiscard]] QueuePair<Rc>& queue_pair() noexcept;
  /// The same, for calls that change nothing.
  [[nodiscard]] const QueuePair<Rc>& queue_pair() const noexcept;

  /// The device of the route; valid as long as the connection.
  [[nodiscard]] const Device& device() const noexcept;
  [[nodiscard]] std::uint8_t port() const noexcept;  ///< of the device, from 1
  /// Address and port of this end, and of the peer. Neither asks the kernel.
  [[nodiscard]] Address local_address() const noexcept;
  /// Address and port of the peer. Does not ask the kernel.
  [[nodiscard]] Address peer_address() const noexcept;
  /// Reads and atomics in flight, as negotiated; known once established (server: once accepted).
  [[nodiscard]] std::uint8_t initiator_depth() const noexcept;
  /// Reads and atomics in flight from the peer, as negotiated; known when initiator_depth() is.
  [[nodiscard]] std::uint8_t responder_depth() const noexcept;

  /// Moves the queue pair to ERR and tells the peer. Does not wait for the peer. It may be called
  /// again, or after the peer has disconnected. Errors: kProvider (errno kept).
  Status disconnect();

  /// Borrowed. Its event channel must not be read by others.
  [[nodiscard]] rdma_cm_id* raw() const noexcept;

 private:
  friend class Connector;
  friend class ConnectionRequest;
  explicit Connection(std::unique_ptr<detail::ConnectionState> state) noexcept;
  std::unique_ptr<detail::ConnectionState> state_;
};

}  // namespace remora::verbs
