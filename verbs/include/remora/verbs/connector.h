#pragma once

/// Connector: the client side of the connection manager. Resolve, create a queue pair, connect.
///
/// Thread safety: one thread at a time.

#include <cstdint>
#include <memory>
#include <optional>
#include <rdma/rdma_cma.h>

#include <remora/result.h>
#include <remora/verbs/address.h>
#include <remora/verbs/connection.h>
#include <remora/verbs/deadline.h>
#include <remora/verbs/device.h>
#include <remora/verbs/provider.h>
#include <remora/verbs/queue_pair.h>

namespace remora::verbs {

/// The options of a connector.
struct ConnectorOptions {
  /// The local address: selects the device if several reach the peer.
  std::optional<Address> source{};
  /// RDMA_OPTION_ID_ACK_TIMEOUT, 4.096 us * 2^n, at most 31: the path's life time, which the
  /// kernels of both sides use, so it also applies to a peer that does not use this library. For
  /// this side alone, QueuePairBuilder::timeout is enough.
  std::optional<std::uint8_t> ack_timeout{};
  /// RDMA_OPTION_ID_TOS: the traffic class of the route, DSCP in its upper six bits, for the
  /// manager's own packets and for the queue pairs of both sides. The kernel derives the service
  /// level from it. Not set: the host's `default_roce_tos`.
  std::optional<std::uint8_t> traffic_class{};
};

class Connector;

/// Resolve without blocking: for an event loop. Call `advance` whenever `event_fd` is readable, and
/// when the deadline has passed, until it returns the connector. Move-only; destroying it ends the
/// attempt.
class Resolver {
 public:
  /// Errors: as Connector::resolve.
  [[nodiscard]] static Result<Resolver> start(const Address& peer, Deadline deadline,
                                              const ConnectorOptions& options = {},
                                              const Provider& provider = Provider::system());
  Resolver(Resolver&&) noexcept;
  Resolver& operator=(Resolver&&) noexcept;
  ~Resolver();

  /// Non-blocking. Borrowed: for poll and epoll only. -1 when spent.
  [[nodiscard]] int event_fd() const noexcept;
  /// The time at which advance() answers kTimedOut: use it for the loop's time-out.
  [[nodiscard]] Deadline deadline() const noexcept { return deadline_; }
  /// Borrowed; null when spent. Its event channel must not be read by others.
  [[nodiscard]] rdma_cm_id* raw() const noexcept;
  /// Takes one step if its event has come. Returns the connector when address and route are
  /// resolved (then this resolver is spent), otherwise an empty value. Never blocks. Errors: as
  /// Connector::resolve, which spend it too; kClosed (spent).
  [[nodiscard]] Result<std::optional<Connector>> advance();

 private:
  Resolver(std::unique_ptr<detail::ConnectionState> state, const std::optional<Address>& source,
           Deadline deadline) noexcept;
  Result<std::optional<Connector>> step();
  std::unique_ptr<detail::ConnectionState> state_;
  std::optional<Address> source_;
  Deadline deadline_;
  bool address_known_ = false;
};

/// Move-only. It may be destroyed at any point, which ends the attempt.
class Connector {
 public:
  /// Finds the device and the route to `peer`, with an attempt every two seconds. **Blocks** until
  /// `deadline`. Errors: kUnreachable with the address as subject (no route, no device that reaches
  /// it; errno kept); kTimedOut; kNotFound (no RDMA device on this host); kInvalidArgument
  /// (ack_timeout); kProvider, kSystem (errno kept). Source: rdma_resolve_addr(3),
  /// rdma_resolve_route(3).
  [[nodiscard]] static Result<Connector> resolve(const Address& peer, Deadline deadline,
                                                 const ConnectorOptions& options = {},
                                                 const Provider& provider = Provider::system());

  Connector(Connector&&) noexcept;
  Connector& operator=(Connector&&) noexcept;
  ~Connector();

  /// The device of the route. Connections over one device get equal handles, so a protection
  /// domain can be shared among them.
  [[nodiscard]] const Device& device() const noexcept;
  /// The port of the device that the route uses, from 1.
  [[nodiscard]] std::uint8_t port() const noexcept;
  /// The two ends of the route that was resolved.
  [[nodiscard]] Gid local_gid() const noexcept;
  /// The GID of the peer on that route.
  [[nodiscard]] Gid peer_gid() const noexcept;
  /// Address and port of this end.
  [[nodiscard]] Address local_address() const noexcept;
  /// Address and port of the peer.
  [[nodiscard]] Address peer_address() const noexcept;

  /// Borrowed, for instance for rdma_set_option; null when spent. Its event channel must not be
  /// read by others.
  [[nodiscard]] rdma_cm_id* raw() const noexcept;

  /// Creates the queue pair; the builder's domain must be of device(). Port and PSN of the builder
  /// are ignored: the route gives them, and all options that the builder does not set. The
  /// builder's GID, MTU, partition, service level, traffic class, hop limit and flow label apply to
  /// this side of the connection, except over iWARP, which has none of them. Receives may be posted
  /// to it at once. Errors: as QueuePairBuilder::build; kInvalidArgument (another device);
  /// kAlreadyExists.
  Status create_queue_pair(const QueuePairBuilder<Rc>& builder);
  /// Only after create_queue_pair succeeded.
  [[nodiscard]] QueuePair<Rc>& queue_pair() noexcept;

  /// Begins to connect and returns at once; the outcome arrives as an event of the connection.
  /// On success this connector is spent.
  /// Errors: kInvalidArgument (no queue pair yet); kLimitExceeded (private data); kClosed (spent);
  /// kProvider (errno kept). Source: rdma_connect(3).
  [[nodiscard]] Result<Connection> start_connect(const ConnectionOptions& options = {});

  /// start_connect() and wait_established(). **Blocks** until `deadline`. The connector is spent
  /// afterwards, also on failure. answer() has the private data of the peer's accept or reject.
  /// Errors: kTimedOut (the peer stayed silent); kConnectionRefused; kUnreachable; and those of
  /// start_connect.
  [[nodiscard]] Result<Connection> connect(Deadline deadline,
                                           const ConnectionOptions& options = {});
  /// The event that ended connect(): kEstablished, kRejected or another failure.
  [[nodiscard]] const std::optional<ConnectionEvent>& answer() const noexcept { return answer_; }

 private:
  friend class Resolver;
  explicit Connector(std::unique_ptr<detail::ConnectionState> state) noexcept;
  std::unique_ptr<detail::ConnectionState> state_;
  std::optional<ConnectionEvent> answer_;
};

}  // namespace remora::verbs
