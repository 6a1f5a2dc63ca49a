#pragma once

/// State of connectors, requests and connections: an id of librdmacm with its event channel and its
/// queue pair. Internal.
///
/// The queue pair is created with ibv_create_qp and brought up with the attributes that
/// rdma_init_qp_attr gives, instead of with rdma_create_qp: time-outs, depths and rights of the
/// builder then hold from the first packet, and one type owns every queue pair.

#include <cstdint>
#include <memory>
#include <optional>
#include <rdma/rdma_cma.h>
#include <span>

#include <remora/result.h>
#include <remora/verbs/connection.h>
#include <remora/verbs/deadline.h>
#include <remora/verbs/device.h>
#include <remora/verbs/provider.h>
#include <remora/verbs/queue_pair.h>

#include "process_provider.h"

namespace remora::verbs::detail {

struct DestroyChannel {
  ProcessProvider provider;
  void operator()(rdma_event_channel* channel) const noexcept {
    provider->destroy_event_channel(channel);
  }
};

/// Creates a non-blocking channel. Errors: kNotFound (no device); kProvider, kSystem.
Result<std::shared_ptr<rdma_event_channel>> create_event_channel(const Provider& provider);

struct DestroyId {  ///< holds the channel, so an id always goes before it
  ProcessProvider provider;
  std::shared_ptr<rdma_event_channel> channel;
  void operator()(rdma_cm_id* id) const noexcept;
};
using CmId = std::unique_ptr<rdma_cm_id, DestroyId>;

/// An id with an event channel of its own.
Result<CmId> create_id(const Provider& provider);

/// An event, copied and acknowledged at once: destroying an id never waits for an unacknowledged
/// event.
struct CmEvent {
  rdma_cm_event_type type{};
  int status = 0;
  rdma_cm_id* id = nullptr;      ///< the new id of a connection request
  rdma_conn_param parameters{};  ///< private_data is null: see the next member
  PrivateData private_data;
};

/// The next event; empty: none waits. Errors: kProvider (errno kept).
Result<std::optional<CmEvent>> take_event(const Provider& provider, rdma_event_channel* channel);

/// Errors: kLimitExceeded.
Status check_private_data(std::span<const std::byte> bytes, std::size_t max_bytes,
                          Operation operation);

struct ConnectionState {
  ConnectionState(const Provider& table, CmId owned) noexcept
      : provider{&table}, id{std::move(owned)} {}

  /// Sets `device` from the id. Errors: kProvider.
  Status find_device();
  Status create_queue_pair(const QueuePairBuilder<Rc>& builder);
  Status connect(const ConnectionOptions& options);
  Status accept(const ConnectionOptions& options);
  Status disconnect();

  Result<std::optional<ConnectionEvent>> next_event();
  Result<ConnectionEvent> wait_event(Deadline deadline);
  Status wait_established(Deadline deadline);

  [[nodiscard]] int event_fd() const noexcept { return id.get_deleter().channel->fd; }
  [[nodiscard]] Address local_address() const noexcept;
  [[nodiscard]] Address peer_address() const noexcept;

  ProcessProvider provider;
  CmId id;
  Device device;
  QueuePairOptions options;
  std::optional<QueuePair<Rc>> pair;  ///< after `id`: a queue pair is destroyed before its id
  Address peer;                       ///< as requested; the id has it only once resolved
  std::uint8_t initiator_depth = 0;
  std::uint8_t responder_depth = 0;
  bool passive = false;  ///< the peer has requested the connection
  bool established = false;
  bool disconnecting = false;
  std::optional<ConnectionEvent> failure;

 private:
  Status modify(ibv_qp_state state);
  Status bring_up();
  [[nodiscard]] Error handshake_error(Operation operation, int number, bool has_peer) const;
  Status finish_connect();
  void break_pair() noexcept;
  ConnectionEvent translate(const CmEvent& event);
};

}  // namespace remora::verbs::detail
