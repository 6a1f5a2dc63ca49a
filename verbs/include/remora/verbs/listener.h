#pragma once

/// ConnectionListener: the server side of the connection manager. Bind, take requests, accept or
/// reject.
///
/// Thread safety: one thread at a time for each object; a request is independent of its listener.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include <remora/result.h>
#include <remora/verbs/address.h>
#include <remora/verbs/connection.h>
#include <remora/verbs/deadline.h>
#include <remora/verbs/device.h>
#include <remora/verbs/provider.h>
#include <remora/verbs/queue_pair.h>

namespace remora::verbs {

namespace detail {
struct ListenerState;
}

/// A peer that wants to connect. Dropping it rejects the peer. Move-only.
class ConnectionRequest {
 public:
  ConnectionRequest(ConnectionRequest&&) noexcept;
  ConnectionRequest& operator=(ConnectionRequest&&) noexcept;
  ~ConnectionRequest();

  /// Bytes from a peer; neither librdmacm nor this class checks them. Padded to 56: see
  /// PrivateData.
  [[nodiscard]] std::span<const std::byte> private_data() const noexcept;
  /// Address and port of the peer, and of this end.
  [[nodiscard]] Address peer_address() const noexcept;
  /// Address and port of this end.
  [[nodiscard]] Address local_address() const noexcept;
  /// The device on which the request arrived: the builder's domain must be of it.
  [[nodiscard]] const Device& device() const noexcept;
  /// The port of that device, from 1.
  [[nodiscard]] std::uint8_t port() const noexcept;
  /// Reads and atomics that the peer wants to have in flight, and allows this side to have in
  /// flight.
  [[nodiscard]] std::uint8_t peer_initiator_depth() const noexcept { return peer_initiator_depth_; }
  /// Reads and atomics that the peer allows this side to have in flight.
  [[nodiscard]] std::uint8_t peer_responder_depth() const noexcept { return peer_responder_depth_; }

  /// Post the first receives before accept(): the peer may send at once.
  /// Errors: as Connector::create_queue_pair; kConnectionLost (the peer has withdrawn).
  Status create_queue_pair(const QueuePairBuilder<Rc>& builder);
  /// Only after create_queue_pair succeeded.
  [[nodiscard]] QueuePair<Rc>& queue_pair() noexcept;

  /// Accepts and returns at once; kEstablished arrives as an event of the connection. The depths of
  /// reads and atomics become the least of the builder's, the device's and the peer's. Consumes the
  /// request; on failure the peer is rejected. Errors: kInvalidArgument (no queue pair yet);
  /// kLimitExceeded (private data); kConnectionLost (the peer went away meanwhile); kProvider
  /// (errno kept). Source: rdma_accept(3).
  [[nodiscard]] Result<Connection> accept(const ConnectionOptions& options = {}) &&;
  /// accept() and wait_established(). **Blocks.** Errors: as both.
  [[nodiscard]] Result<Connection> accept(Deadline deadline,
                                          const ConnectionOptions& options = {}) &&;

  /// Rejects the peer, with up to kMaxRejectDataBytes of `private_data`. Consumes the request.
  /// Errors: kLimitExceeded; kProvider (errno kept). Source: rdma_reject(3).
  Status reject(std::span<const std::byte> private_data = {}) &&;

  /// Readable when the peer's state changes before it was accepted. Borrowed.
  [[nodiscard]] int event_fd() const noexcept;
  /// Borrowed. Its event channel must not be read by others.
  [[nodiscard]] rdma_cm_id* raw() const noexcept;

 private:
  friend class WaitingRequest;
  ConnectionRequest(std::unique_ptr<detail::ConnectionState> state, const PrivateData& private_data,
                    std::uint8_t initiator_depth, std::uint8_t responder_depth) noexcept;
  void drop() noexcept;
  std::unique_ptr<detail::ConnectionState> state_;
  PrivateData private_data_;
  std::uint8_t peer_initiator_depth_;
  std::uint8_t peer_responder_depth_;
};

/// A request that was read from its listener and not taken yet. It has no descriptor of its own, so
/// very many can wait. Dropping it rejects the peer. Used by the thread of its listener, which it
/// may outlive. Move-only.
class WaitingRequest {
 public:
  WaitingRequest(WaitingRequest&&) noexcept;
  WaitingRequest& operator=(WaitingRequest&&) noexcept;
  ~WaitingRequest();

  /// See ConnectionRequest::private_data().
  [[nodiscard]] std::span<const std::byte> private_data() const noexcept;
  /// Name of the device over which the request has come.
  [[nodiscard]] std::string_view device_name() const noexcept;
  /// Whether the request cannot be accepted any more: its peer has withdrawn it, or the device has
  /// gone. A peer withdraws its request when its time-out has passed. Asks the kernel.
  [[nodiscard]] bool withdrawn() const noexcept;
  /// Takes the request, with an event channel of its own. Consumes it; on failure the peer is
  /// rejected. Errors: kProvider, kSystem (errno kept).
  [[nodiscard]] Result<ConnectionRequest> take() &&;

 private:
  friend class ConnectionListener;
  WaitingRequest(std::unique_ptr<detail::ConnectionState> state, const PrivateData& private_data,
                 std::uint8_t initiator_depth, std::uint8_t responder_depth) noexcept;
  void drop() noexcept;
  std::unique_ptr<detail::ConnectionState> state_;
  PrivateData private_data_;
  std::uint8_t peer_initiator_depth_;
  std::uint8_t peer_responder_depth_;
};

/// Move-only. When it is destroyed, accepted connections stay, and requests that were not taken are
/// rejected.
class ConnectionListener {
 public:
  /// Listens on `address`, on every device that has it (or on all, for an any-address). Port 0
  /// takes a free port. `backlog` requests wait; the kernel refuses further ones. Errors:
  /// kAddressInUse and kNotFound (no device has the address) with the address as subject;
  /// kPermissionDenied; kProvider, kSystem (errno kept). Source: rdma_bind_addr(3), rdma_listen(3).
  [[nodiscard]] static Result<ConnectionListener> bind(
      const Address& address, int backlog = 128, const Provider& provider = Provider::system());

  ConnectionListener(ConnectionListener&&) noexcept;
  ConnectionListener& operator=(ConnectionListener&&) noexcept;
  ~ConnectionListener();

  /// Non-blocking; readable when a request waits. Borrowed: for poll and epoll only.
  [[nodiscard]] int event_fd() const noexcept;
  /// The device that has the address. Empty: the listener is bound to every device.
  [[nodiscard]] const Device& device() const noexcept;
  /// The address, with the port that was taken.
  [[nodiscard]] Address local_address() const noexcept;

  /// Takes one request; empty: none waits. The request has an event channel of its own. Errors:
  /// kProvider, kSystem (errno kept): a request that could not be taken over was dropped (its peer
  /// is rejected), or the listener's device is going; the function may be called again.
  [[nodiscard]] Result<std::optional<ConnectionRequest>> next_request();
  /// Reads one request without taking it; empty: none is left to read. Errors: kProvider, kSystem
  /// (errno kept): the listener's device is going, or the kernel reports no event; the function may
  /// be called again.
  [[nodiscard]] Result<std::optional<WaitingRequest>> next_waiting();
  /// next_request(), waiting for one. **Blocks.** Errors: kTimedOut; those of next_request.
  [[nodiscard]] Result<ConnectionRequest> wait_request(Deadline deadline);

  /// Borrowed.
  [[nodiscard]] rdma_cm_id* raw() const noexcept;

 private:
  explicit ConnectionListener(std::unique_ptr<detail::ListenerState> state) noexcept;
  std::unique_ptr<detail::ListenerState> state_;
};

}  // namespace remora::verbs
