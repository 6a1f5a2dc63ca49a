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

struct ConnectorOptions {
  /// Where to come from: picks the device where several reach the peer.
  std::optional<Address> source{};
  /// RDMA_OPTION_ID_ACK_TIMEOUT, 4.096 us * 2^n, at most 31: the path's life time as both sides'
  /// kernels use it, so a peer that is not ours gets it too. For our own side alone,
  /// QueuePairBuilder::timeout is enough.
  std::optional<std::uint8_t> ack_timeout{};
  /// RDMA_OPTION_ID_TOS: the traffic class of the route, DSCP in its upper six bits, for the
  /// manager's own packets and for the queue pairs of both sides. The kernel derives the service
  /// level from it. Not set: what the host's `default_roce_tos` says.
  std::optional<std::uint8_t> traffic_class{};
};

class Connector;

/// Resolve without blocking: for an event loop. Call `advance` whenever `event_fd` is readable, and
/// when the deadline has passed, until it gives the connector. Move-only; destroying it gives up.
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
  [[nodiscard]] Deadline deadline() const noexcept { return deadline_; }
  /// Borrowed; null when spent. Its event channel must not be read by others.
  [[nodiscard]] rdma_cm_id* raw() const noexcept;
  /// One step where its event is there. The connector when all is resolved (this is spent then),
  /// nothing while it is not. Never blocks. Errors: as Connector::resolve, which spend it too;
  /// kClosed (spent).
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

/// Move-only. Destroying it at any point is safe and gives up.
class Connector {
 public:
  /// Finds the device and the route to `peer`, asked for every two seconds. **Blocks** until
  /// `deadline`.
  /// Errors: kUnreachable with the address as subject (no route, no device that reaches it; errno
  /// kept); kTimedOut; kNotFound (no RDMA device on this host); kInvalidArgument (ack_timeout);
  /// kProvider, kSystem (errno kept).
  /// Source: rdma_resolve_addr(3), rdma_resolve_route(3).
  [[nodiscard]] static Result<Connector> resolve(const Address& peer, Deadline deadline,
                                                 const ConnectorOptions& options = {},
                                                 const Provider& provider = Provider::system());

  Connector(Connector&&) noexcept;
  Connector& operator=(Connector&&) noexcept;
  ~Connector();

  /// The device of the route. Connections over one device get equal handles, so a protection
  /// domain can be shared among them.
  [[nodiscard]] const Device& device() const noexcept;
  [[nodiscard]] std::uint8_t port() const noexcept;
  [[nodiscard]] Gid local_gid() const noexcept;
  [[nodiscard]] Gid peer_gid() const noexcept;
  [[nodiscard]] Address local_address() const noexcept;
  [[nodiscard]] Address peer_address() const noexcept;

  /// Borrowed, for instance for rdma_set_option; null when spent. Its event channel must not be
  /// read by others.
  [[nodiscard]] rdma_cm_id* raw() const noexcept;

  /// Creates the queue pair; the builder's domain must be of device(). Port and PSN of the builder
  /// are ignored: the route has them, and what else the builder leaves open. What the builder sets
  /// of GID, MTU, partition, service level, traffic class, hop limit and flow label holds for this
  /// side of the connection, but over iWARP, which has none of them. Receives may be posted to it
  /// at once.
  /// Errors: as QueuePairBuilder::build; kInvalidArgument (another device); kAlreadyExists.
  Status create_queue_pair(const QueuePairBuilder<Rc>& builder);
  /// Only after create_queue_pair succeeded.
  [[nodiscard]] QueuePair<Rc>& queue_pair() noexcept;

  /// Begins to connect and returns at once; the outcome arrives as an event of the connection.
  /// On success this connector is spent.
  /// Errors: kInvalidArgument (no queue pair yet); kLimitExceeded (private data); kClosed (spent);
  /// kProvider (errno kept). Source: rdma_connect(3).
  [[nodiscard]] Result<Connection> start_connect(const ConnectionOptions& options = {});

  /// start_connect() and wait_established(). **Blocks** until `deadline`. Spent afterwards, also on
  /// failure. The acceptor's private data, or the rejecter's, is in answer().
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
