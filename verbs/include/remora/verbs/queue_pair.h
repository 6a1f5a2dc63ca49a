#pragma once

/// Queue pairs: builder, prepared, connected.
///
/// `QueuePairBuilder<Rc>{domain, send_cq, recv_cq}.send_depth(64).build()` gives a
/// `PreparedQueuePair`: it can receive posts of receives and has an `Endpoint` to send to the peer
/// over any other channel. `std::move(prepared).connect(endpoint)` makes it a `QueuePair`. The
/// connection manager (connection.h) exchanges the endpoints itself. A datagram queue pair
/// (`QueuePairBuilder<Ud>`) has no peer to connect to: `std::move(prepared).activate()`.
///
/// By hand: `builder.create()` gives a queue pair in RESET, `modify` takes it from state to state.
///
/// A queue pair keeps its protection domain and completion queues alive. Destroying it drops posted
/// requests without completions: to get these, call `to_error()` and drain first.
///
/// Thread safety: `post_send`, `post_receive` (raw) and const calls are safe concurrently if the
/// provider locks, which all providers do unless their environment variables turn it off. `start`
/// and `start_receives` without a storage use the pair's own: one batch with unposted requests at a
/// time.

#include <array>
#include <cstddef>
#include <cstdint>
#include <infiniband/verbs.h>
#include <memory>
#include <optional>
#include <ostream>
#include <span>
#include <type_traits>
#include <utility>

#include <remora/result.h>
#include <remora/verbs/access.h>
#include <remora/verbs/batch.h>
#include <remora/verbs/completion_queue.h>
#include <remora/verbs/endpoint.h>
#include <remora/verbs/gid.h>
#include <remora/verbs/memory_window.h>
#include <remora/verbs/protection_domain.h>
#include <remora/verbs/queue_pair_attributes.h>
#include <remora/verbs/shared_receive_queue.h>
#include <remora/verbs/slice.h>
#include <remora/verbs/transport.h>

namespace remora::verbs {

/// The capacities that the device granted: at least the requested ones.
struct QueuePairCapabilities {
  std::uint32_t send_depth = 0;     ///< requests that may be posted and not completed
  std::uint32_t receive_depth = 0;  ///< the same for receives
  std::uint32_t send_sge = 0;       ///< slices of a send, write or read
  std::uint32_t receive_sge = 0;    ///< slices of a receive
  std::uint32_t inline_bytes = 0;   ///< the longest inline request
};
/// "sends 64 receives 16 slices 1/1 inline 0".
std::ostream& operator<<(std::ostream& out, const QueuePairCapabilities& capabilities);

/// Every option of a queue pair. An absent optional value means: the value that the connection
/// manager finds or, without the manager, the default in the comment. exception: options, each with
/// a default.
struct QueuePairOptions {
  std::uint32_t send_depth = 64;     ///< requests that may be posted and not completed
  std::uint32_t receive_depth = 16;  ///< the same for receives
  std::uint32_t send_sge = 1;        ///< slices of a send, write or read
  std::uint32_t receive_sge = 1;     ///< slices of a receive
  std::uint32_t inline_bytes = 0;    ///< the longest request that may be inline
  /// Requests that the pair's own batch storage holds; 0: min(send_depth, 64). The same for
  /// receives: min(receive_depth, 64).
  std::uint32_t batch_requests = 0;
  bool signal_all = false;  ///< every request completes, whatever the request says
  void* context = nullptr;  ///< ibv_qp::qp_context
  /// The rights of peers, limited again by each registration. Default: every remote right that the
  /// device supports.
  std::optional<Access> access;
  std::uint8_t port = 1;                    ///< without the connection manager
  std::optional<std::uint16_t> pkey_index;  ///< default: 0, or that of the manager's route
  /// Default: Device::choose_gid, or that of the manager's route.
  std::optional<std::uint32_t> gid_index;
  /// Default: the port's active MTU, or the peer's. Over the connection manager the lesser of this
  /// and that of the route; both sides of a connection need the same.
  std::optional<ibv_mtu> mtu;
  std::optional<std::uint32_t> psn;  ///< 24 bits; default: random
  /// Acknowledgement time-out, 4.096 us * 2^n, at most 31; 0: no time-out. Default 14 (67 ms), or
  /// the value that the connection manager derives from its route. Emulated machines need 18 and
  /// more.
  std::optional<std::uint8_t> timeout;
  /// Over the connection manager, if `timeout` is not set: the manager's own time-out is raised to
  /// this one, and never lowered. At most 31.
  std::uint8_t timeout_at_least = 0;
  std::uint8_t retry_count = 7;      ///< 0 to 7
  std::uint8_t rnr_retry_count = 6;  ///< 0 to 7; 7 means without end
  /// 0 to 31, coded. Default 12 (0.64 ms), also over the connection manager, which sets none.
  std::optional<std::uint8_t> min_rnr_timer;
  /// Reads and atomics in flight from this side, and from the peer. Default: the device's maximum.
  std::optional<std::uint8_t> initiator_depth;
  std::optional<std::uint8_t> responder_depth;
  /// Defaults: those of the connection manager's route; without the manager 0, 0, 64 and 0.
  std::optional<std::uint8_t> service_level;  ///< 0 to 15
  std::optional<std::uint8_t> traffic_class;
  std::optional<std::uint8_t> hop_limit;
  std::optional<std::uint32_t> flow_label;  ///< 20 bits
  /// Whether the path has a global header. build() sets it if the port requires that; without LIDs
  /// the path always has one.
  bool global_route = false;
  /// Datagrams with another key are dropped. Only for Ud. With the highest bit set the kernel
  /// requires a privilege.
  std::uint32_t qkey = 0x11111111;
  /// The shared queue from which the pair takes receives, instead of a queue of its own;
  /// receive_depth and receive_sge are then ignored.
  SharedReceiveQueue shared_receive_queue{};
};
/// "sends 64 receives 16 slices 1/1 inline 0 port 1 ...": optional ones where they are set.
std::ostream& operator<<(std::ostream& out, const QueuePairOptions& options);

namespace detail {

/// "RC qp 17 on rxe0: sends 64 ..."; "no queue pair" of null.
std::ostream& print_queue_pair(std::ostream& out, const ibv_qp* pair,
                               const QueuePairCapabilities& capabilities);

/// The base of the typed classes below; applications use those.
class QueuePairCore {
 public:
  /// A pair in RESET. Errors: as QueuePairBuilder::create().
  static Result<QueuePairCore> create(const ProtectionDomain& domain,
                                      const CompletionQueue& send_queue,
                                      const CompletionQueue& receive_queue,
                                      const QueuePairOptions& options, ibv_qp_type type);
  /// One step with the structure and mask of verbs. Errors: as QueuePair::modify().
  Status modify(ibv_qp_attr& attributes, int mask) const;
  /// One step. Errors: as QueuePair::modify().
  Status modify(const QueuePairAttributes& attributes) const;
  /// Every attribute. Errors: kProvider (errno kept).
  [[nodiscard]] Result<QueuePairAttributes> query_all() const;
  /// As QueuePair::allocate_window().
  [[nodiscard]] Result<MemoryWindow> allocate_window() const;
  /// Asks the kernel. Errors: kProvider (errno kept).
  [[nodiscard]] Result<QueuePairState> query_state() const;
  /// The attributes of `mask`. Errors: kProvider (errno kept).
  [[nodiscard]] Result<ibv_qp_attr> query(int mask) const;
  /// The domain that the pair keeps alive; valid as long as the pair.
  [[nodiscard]] const ProtectionDomain& domain() const noexcept { return qp_.get_deleter().domain; }

  struct Destroy {  ///< holds the parents, so a queue pair always goes before them
    ProtectionDomain domain;
    CompletionQueue send_queue;
    CompletionQueue receive_queue;
    SharedReceiveQueue shared_receive_queue;
    /// freed first: a bound window would hold the pair for long
    std::shared_ptr<WindowSet> windows;
    /// Frees the windows, then destroys `pair`.
    void operator()(ibv_qp* pair) const noexcept;
  };
  std::unique_ptr<ibv_qp, Destroy> qp_;
  int (*post_send_)(ibv_qp*, ibv_send_wr*, ibv_send_wr**) = nullptr;
  int (*post_receive_)(ibv_qp*, ibv_recv_wr*, ibv_recv_wr**) = nullptr;
  QueuePairCapabilities capabilities_;
  BatchStorage batch_;
  ReceiveStorage receives_;

 private:
  [[nodiscard]] Error modify_error(const ibv_qp_attr& attributes, int mask, int number) const;
  QueuePairCore(std::unique_ptr<ibv_qp, Destroy> pair, const QueuePairCapabilities& capabilities,
                BatchStorage batch, ReceiveStorage receives) noexcept;
};

struct ConnectionState;

/// RTR and RTS of a prepared queue pair.
Status connect(const QueuePairCore& core, bool reliable, const QueuePairOptions& options,
               const Endpoint& local, const Endpoint& remote);
/// RTR and RTS of a datagram queue pair, which has no peer. Errors: kProvider (errno kept).
Status activate(const QueuePairCore& core, const QueuePairOptions& options);

}  // namespace detail

template <Transport T>
class PreparedQueuePair;
template <Transport T>
class QueuePairBuilder;

/// A queue pair, ready for posts. Move-only.
template <Transport T>
class QueuePair {
 public:
  /// Begins a chain in the pair's own storage. One such batch at a time may have unposted requests:
  /// posting a second one returns kBusy.
  [[nodiscard]] Batch<T> start() noexcept { return start(core_.batch_); }
  /// Begins a chain in `storage`, which must outlive the batch.
  [[nodiscard]] Batch<T> start(BatchStorage& storage) noexcept {
    return Batch<T>{core_.qp_.get(), core_.post_send_, core_.capabilities_.inline_bytes, storage};
  }
  /// Begins a chain of receives, as start(): in the pair's own storage.
  [[nodiscard]] ReceiveBatch start_receives() noexcept { return start_receives(core_.receives_); }
  /// Begins a chain of receives in `storage`, which must outlive the batch.
  [[nodiscard]] ReceiveBatch start_receives(ReceiveStorage& storage) noexcept {
    return ReceiveBatch{core_.qp_.get(), core_.post_receive_, storage};
  }
  /// One receive. Errors: as ReceiveBatch::post.
  Status post_receive(std::uint64_t id, const LocalSlice& local) {
    return start_receives().receive(id, local).post();
  }

  /// ibv_post_send itself, through the function table: for the caller's own chains. Returns 0 or an
  /// errno; `*bad` is then the first request that was not taken. The chain is not checked.
  int post_send(ibv_send_wr* chain, ibv_send_wr** bad) const noexcept {
    return core_.post_send_(core_.qp_.get(), chain, bad);
  }
  /// ibv_post_recv itself, as post_send.
  int post_receive(ibv_recv_wr* chain, ibv_recv_wr** bad) const noexcept {
    return core_.post_receive_(core_.qp_.get(), chain, bad);
  }

  /// The number by which the peer and completions name the pair; 24 bits.
  [[nodiscard]] std::uint32_t number() const noexcept { return core_.qp_->qp_num; }
  /// The capacities that the device granted. Does not ask it.
  [[nodiscard]] const QueuePairCapabilities& capabilities() const noexcept {
    return core_.capabilities_;
  }
  /// The parents that the pair keeps alive; valid as long as the pair.
  [[nodiscard]] const ProtectionDomain& domain() const noexcept { return core_.domain(); }
  /// The queue of the completions of sends; kept alive by the pair.
  [[nodiscard]] const CompletionQueue& send_queue() const noexcept {
    return core_.qp_.get_deleter().send_queue;
  }
  /// The queue of the completions of receives; kept alive by the pair.
  [[nodiscard]] const CompletionQueue& receive_queue() const noexcept {
    return core_.qp_.get_deleter().receive_queue;
  }
  /// Empty if the pair has a receive queue of its own.
  [[nodiscard]] const SharedReceiveQueue& shared_receive_queue() const noexcept {
    return core_.qp_.get_deleter().shared_receive_queue;
  }

  /// Asks the kernel. Errors: kProvider (errno kept).
  [[nodiscard]] Result<QueuePairState> query_state() const { return core_.query_state(); }
  /// Errors: kProvider (errno kept). Source: ibv_query_qp(3) for `mask` (IBV_QP_...).
  [[nodiscard]] Result<ibv_qp_attr> query(int mask) const { return core_.query(mask); }
  /// Breaks the pair: all posted requests complete as flushed. Errors: kProvider (errno kept).
  Status to_error() const {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_ERR;
    return core_.modify(attributes, IBV_QP_STATE);
  }
  /// Any change of state or attributes. Errors: kProvider (errno kept); if the kernel answers
  /// EINVAL, the subject names the attributes that the step lacks or must not have. Source:
  /// ibv_modify_qp(3).
  Status modify(const QueuePairAttributes& attributes) const { return core_.modify(attributes); }
  /// The same with the structure and mask of verbs.
  Status modify(ibv_qp_attr& attributes, int mask) const { return core_.modify(attributes, mask); }
  /// Every attribute, as the kernel knows it. Errors: kProvider (errno kept).
  [[nodiscard]] Result<QueuePairAttributes> query() const { return core_.query_all(); }

  /// A window of this queue pair, freed before it at the latest. Errors: kUnsupported;
  /// kOutOfMemory; kProvider (errno kept). Source: ibv_alloc_mw(3).
  [[nodiscard]] Result<MemoryWindow> allocate_window() const requires(T::kConnected) {
    return core_.allocate_window();
  }

  /// Borrowed; never destroy it.
  [[nodiscard]] ibv_qp* raw() const noexcept { return core_.qp_.get(); }

 private:
  friend class PreparedQueuePair<T>;
  friend class QueuePairBuilder<T>;
  friend struct detail::ConnectionState;
  explicit QueuePair(detail::QueuePairCore core) noexcept : core_{std::move(core)} {}
  detail::QueuePairCore core_;
};

/// "RC qp 17 on rxe0: sends 64 receives 16 slices 1/1 inline 0"; "no queue pair" when moved from.
template <Transport T>
std::ostream& operator<<(std::ostream& out, const QueuePair<T>& pair) {
  return detail::print_queue_pair(out, pair.raw(), pair.capabilities());
}

/// Collects options; each setter returns the builder. QueuePairOptions has the unit, the range and
/// the default of each; build() and create() check them.
template <Transport T>
class QueuePairBuilder {
 public:
  /// The parents, which the queue pair keeps alive. Of one device; the queues may be the same.
  QueuePairBuilder(ProtectionDomain domain, CompletionQueue send_queue,
                   CompletionQueue receive_queue) noexcept
      : domain_{std::move(domain)},
        send_queue_{std::move(send_queue)},
        receive_queue_{std::move(receive_queue)} {}

  /// Requests that may be posted and not completed. Default 64.
  QueuePairBuilder& send_depth(std::uint32_t n) { return options_.send_depth = n, *this; }
  /// Receives that may be posted and not completed. Default 16.
  QueuePairBuilder& receive_depth(std::uint32_t n) { return options_.receive_depth = n, *this; }
  /// Slices of a send, write or read. Default 1.
  QueuePairBuilder& send_sge(std::uint32_t n) { return options_.send_sge = n, *this; }
  /// Slices of a receive. Default 1.
  QueuePairBuilder& receive_sge(std::uint32_t n) { return options_.receive_sge = n, *this; }
  /// The longest request that may be inline, in bytes. Default 0.
  QueuePairBuilder& inline_bytes(std::uint32_t n) { return options_.inline_bytes = n, *this; }
  /// Requests of the pair's own batch storage. 0: the lesser of the depth and 64.
  QueuePairBuilder& batch_requests(std::uint32_t n) { return options_.batch_requests = n, *this; }
  /// True: every request completes, whatever it says. Default false.
  QueuePairBuilder& signal_all(bool on) { return options_.signal_all = on, *this; }
  /// Borrowed, and never read: ibv_qp::qp_context. Default null.
  QueuePairBuilder& context(void* pointer) { return options_.context = pointer, *this; }
  /// Rights of peers. Default: every remote right that the device supports.
  QueuePairBuilder& access(Access rights) requires(T::kConnected) {
    return options_.access = rights, *this;
  }
  /// Datagrams with another key are dropped.
  QueuePairBuilder& qkey(std::uint32_t key) requires(!T::kConnected) {
    return options_.qkey = key, *this;
  }
  /// The pair takes its receives from `queue`, and keeps it alive.
  QueuePairBuilder& shared_receive_queue(SharedReceiveQueue queue) {
    return options_.shared_receive_queue = std::move(queue), *this;
  }
  /// Port of the device, from 1, without the connection manager. Default 1.
  QueuePairBuilder& port(std::uint8_t number) { return options_.port = number, *this; }
  /// Row of the partition table. Default 0, or that of the route.
  QueuePairBuilder& pkey_index(std::uint16_t n) { return options_.pkey_index = n, *this; }
  /// Row of the GID table. Default: Device::choose_gid(), or that of the route.
  QueuePairBuilder& gid_index(std::uint32_t n) { return options_.gid_index = n, *this; }
  /// Path MTU. Default: the port's active one, or the peer's.
  QueuePairBuilder& mtu(ibv_mtu value) { return options_.mtu = value, *this; }
  /// First packet sequence number, 24 bits. Default: random.
  QueuePairBuilder& psn(std::uint32_t value) { return options_.psn = value, *this; }
  /// Acknowledgement time-out, 4.096 us * 2^code, at most 31; 0: none. Default 14.
  QueuePairBuilder& timeout(std::uint8_t code) requires(T::kReliable) {
    return options_.timeout = code, *this;
  }
  /// Raises the connection manager's time-out to this code, at most 31.
  QueuePairBuilder& timeout_at_least(std::uint8_t code) requires(T::kReliable) {
    return options_.timeout_at_least = code, *this;
  }
  /// Retries without an acknowledgement, 0 to 7. Default 7.
  QueuePairBuilder& retry_count(std::uint8_t n) requires(T::kReliable) {
    return options_.retry_count = n, *this;
  }
  /// Retries when the peer has no receive, 0 to 7; 7: without end. Default 6.
  QueuePairBuilder& rnr_retry_count(std::uint8_t n) requires(T::kReliable) {
    return options_.rnr_retry_count = n, *this;
  }
  /// The coded time for which the peer waits in that case, 0 to 31. Default 12 (0.64 ms).
  QueuePairBuilder& min_rnr_timer(std::uint8_t code) requires(T::kReliable) {
    return options_.min_rnr_timer = code, *this;
  }
  /// Reads and atomics in flight from this side. Default: the device's maximum.
  QueuePairBuilder& initiator_depth(std::uint8_t n) requires(T::kReliable) {
    return options_.initiator_depth = n, *this;
  }
  /// Reads and atomics in flight from the peer. Default: the device's maximum.
  QueuePairBuilder& responder_depth(std::uint8_t n) requires(T::kReliable) {
    return options_.responder_depth = n, *this;
  }
  /// 0 to 15. Default: that of the route, or 0.
  QueuePairBuilder& service_level(std::uint8_t n) { return options_.service_level = n, *this; }
  /// Of the global header. Default: that of the route, or 0.
  QueuePairBuilder& traffic_class(std::uint8_t n) { return options_.traffic_class = n, *this; }
  /// Of the global header. Default: that of the route, or 64.
  QueuePairBuilder& hop_limit(std::uint8_t n) { return options_.hop_limit = n, *this; }
  /// Of the global header, 20 bits. Default: that of the route, or 0.
  QueuePairBuilder& flow_label(std::uint32_t n) { return options_.flow_label = n, *this; }

  /// The options so far, and the parents.
  [[nodiscard]] const QueuePairOptions& options() const noexcept { return options_; }
  /// The domain that the pair keeps alive; valid as long as the pair.
  [[nodiscard]] const ProtectionDomain& domain() const noexcept { return domain_; }
  /// The queue of the completions of sends; kept alive by the pair.
  [[nodiscard]] const CompletionQueue& send_queue() const noexcept { return send_queue_; }
  /// The queue of the completions of receives; kept alive by the pair.
  [[nodiscard]] const CompletionQueue& receive_queue() const noexcept { return receive_queue_; }

  /// Creates the queue pair, in state INIT. Errors: kInvalidArgument (parents of different devices,
  /// a value out of its range, an inactive port); kLimitExceeded (depth or slices beyond the
  /// device; asked() and allowed()); kNotFound (no usable GID); kOutOfMemory; kProvider (errno
  /// kept).
  /// Source: ibv_create_qp(3), ibv_modify_qp(3).
  [[nodiscard]] Result<PreparedQueuePair<T>> build() const {
    return PreparedQueuePair<T>::build(*this);
  }
  /// Creates the queue pair, in state RESET; the caller brings it up by `modify`, and sets port,
  /// GID, path and all other attributes. Errors: as build(), without those about port and GID.
  [[nodiscard]] Result<QueuePair<T>> create() const {
    auto core =
        detail::QueuePairCore::create(domain_, send_queue_, receive_queue_, options_, T::kType);
    if (!core) return core.error();
    return QueuePair<T>{std::move(*core)};
  }

 private:
  ProtectionDomain domain_;
  CompletionQueue send_queue_;
  CompletionQueue receive_queue_;
  QueuePairOptions options_;
};

/// A queue pair in state INIT: it has an endpoint, takes receives, and waits for a peer's endpoint.
template <Transport T>
class PreparedQueuePair {
 public:
  using EndpointType = std::conditional_t<T::kConnected, Endpoint, DatagramEndpoint>;
  /// What the peer needs to reach this queue pair: send it over another channel.
  [[nodiscard]] const EndpointType& endpoint() const noexcept { return endpoint_; }
  /// For posting receives before the peer can send.
  [[nodiscard]] QueuePair<T>& pair() noexcept { return pair_; }
  /// The port and the GID index in use: the source for DatagramPeer::create.
  [[nodiscard]] AddressVector source() const noexcept;

  /// Connects it (RTR, RTS) to `remote`; the path MTU is the smaller of both. The peer must do the
  /// same with this side's endpoint. Consumes the object. Errors: kInvalidArgument (endpoint out of
  /// range); kUnreachable (the address does not resolve: both GIDs are the subject, reason() tells
  /// why; errno kept); kProvider (errno kept).
  [[nodiscard]] Result<QueuePair<T>> connect(const Endpoint& remote) && requires(T::kConnected) {
    const Status up = detail::connect(pair_.core_, T::kReliable, options_, endpoint_, remote);
    if (!up) return up.error();
    return std::move(pair_);
  }
  /// Makes the pair ready to send and receive (RTR, RTS). Consumes the object. Errors: kProvider
  /// (errno kept).
  [[nodiscard]] Result<QueuePair<T>> activate() && requires(!T::kConnected) {
    const Status up = detail::activate(pair_.core_, options_);
    if (!up) return up.error();
    return std::move(pair_);
  }

 private:
  friend class QueuePairBuilder<T>;
  PreparedQueuePair(QueuePair<T> pair, const EndpointType& endpoint,
                    const QueuePairOptions& options)
      : pair_{std::move(pair)}, endpoint_{endpoint}, options_{options} {}
  static Result<PreparedQueuePair> build(const QueuePairBuilder<T>& builder);

  QueuePair<T> pair_;
  EndpointType endpoint_;
  QueuePairOptions options_;  ///< with every default of build() filled in
};

}  // namespace remora::verbs
