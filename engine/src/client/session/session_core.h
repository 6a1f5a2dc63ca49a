#pragma once

/// A session of a client with its server: its state, and its parts.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <remora/engine/control.h>
#include <remora/engine/engine.h>
#include <remora/mutex.h>

#include "base/event_loop.h"
#include "client/datapath/client_metrics.h"
#include "client/datapath/lane_driver.h"
#include "client/datapath/many_batches.h"
#include "client/services/session_ticker.h"
#include "client/session/control_channel.h"
#include "client/session/grant_keys.h"
#include "client/session/handler_dispatcher.h"
#include "client/session/handshake.h"
#include "client/session/keep_alive.h"
#include "client/session/open_regions.h"
#include "client/session/opening.h"
#include "client/session/rail_hold.h"
#include "client/session/reconnector.h"
#include "client/session/revocation_tracker.h"
#include "client/session/server_connector.h"
#include "client/session/server_events.h"
#include "client/session/session_lanes.h"
#include "client/session/session_state.h"
#include "client/session/transition_mutex.h"
#include "protocol/messages.h"
#include "transport/client_endpoint.h"
#include "transport/connection_rails.h"
#include "transport/lane.h"
#include "transport/memory_domain.h"
#include "transport/notice.h"

namespace remora::detail {

class EngineServices;
class MemoryReleaser;

/// A grant that the server has given.
struct OpenedGrant {
  RegionInfo info;
  std::uint64_t grant_id;
  transport::AttachedGrant grant;
  std::uint64_t connection;  ///< the connection on which the server has given it
};

/// The state of the session and its transitions: interrupted, resumed, ended. Its parts do
/// everything else; a part that several threads use has its own mutex. Handles, regions, queues and
/// threads that work for the session share it. Thread-safe.
///
/// Mutexes are locked in this order: transition_mutex_, mutex_, the mutex of a part. The mutexes of
/// lanes are locked after transition_mutex_, and before the mutex of RevocationTracker.
class SessionCore final : public SessionTicker::Ticked,
                          public std::enable_shared_from_this<SessionCore> {
 public:
  using Answer = ControlChannel::Answer;
  using End = ClientMetrics::SessionEnd;

  /// Connects, says hello and opens the lanes. Blocks, at most until `deadline`.
  static Result<std::shared_ptr<SessionCore>> start(std::shared_ptr<EngineServices> engine,
                                                    ServerConnector connector, Deadline deadline);
  /// `loop`: the engine's, which lives as long as the session keeps the engine.
  SessionCore(std::shared_ptr<EngineServices> engine, ServerConnector connector,
              std::shared_ptr<transport::ClientEndpoint> endpoint, EventLoop& loop);
  ~SessionCore() override;

  [[nodiscard]] EngineServices& engine() const noexcept { return *engine_; }
  [[nodiscard]] const ServerInfo& server() const noexcept { return handshake_.server(); }
  /// The version of the protocol.
  [[nodiscard]] std::uint32_t version() const noexcept { return handshake_.version(); }
  /// The server knows the requests of an administrator.
  [[nodiscard]] bool administration() const noexcept { return handshake_.administration(); }
  [[nodiscard]] TransportKind kind() const noexcept { return kind_; }
  /// "host:port", as in the URI.
  [[nodiscard]] const std::string& server_address() const noexcept { return connector_.server; }
  /// The local device of the latest control channel; empty where no device carries it.
  [[nodiscard]] std::string local_device() const { return channel_.endpoint()->device(); }
  [[nodiscard]] const ClientMetrics& metrics() const noexcept { return *metrics_; }

  // The state:
  [[nodiscard]] bool connected() const noexcept { return state() == SessionState::kUp; }
  /// Whether it has ended for good.
  [[nodiscard]] bool ended() const noexcept { return state() == SessionState::kEnded; }
  /// Why the session was interrupted or has ended.
  [[nodiscard]] Reason lost_reason() const noexcept { return lost_reason_.load(); }
  /// Why an operation ended with its lane. If only the loss of the connection is known, waits at
  /// most 50 ms until the server's last message has been read, which may give the reason.
  [[nodiscard]] Reason explain(Reason reason) noexcept;
  /// See Session::settled().
  Status settled(Deadline deadline);
  /// As settled(deadline), also until a stop is requested.
  Status settled(const ControlLimits& limits);
  /// The control thread calls it regularly, for keep-alive.
  void tick(Clock::time_point now) noexcept override {
    keep_alive_.tick(now);
    const auto endpoint = channel_.endpoint();
    endpoint->look();
    const transport::ConnectionRails* const rails = endpoint->rails();
    if (rails != nullptr && rails->rail_returned()) take_rail_back();
  }
  /// Interrupts or ends the session, since its lanes or its channel have ended. Do not call it
  /// while holding a lane. `connection`: the connection on which that happened; has no effect if
  /// another connection has followed. 0: the current one.
  void fail(Reason reason, std::uint64_t connection = 0) noexcept;

  // Lanes: see SessionLanes.
  [[nodiscard]] const std::vector<std::unique_ptr<LaneDriver>>& lanes() const noexcept {
    return lanes_.all();
  }
  [[nodiscard]] LaneDriver& next_lane(SessionLanes::Use use,
                                      std::uint32_t atomics_on = 0) noexcept {
    return lanes_.next(use, atomics_on);
  }
  [[nodiscard]] LaneDriver& lane_of_thread(SessionLanes::Use use) const noexcept {
    return lanes_.of_thread(use);
  }
  /// The releaser with which a queue on the lane registers its table; null: the lane needs no keys.
  [[nodiscard]] std::shared_ptr<MemoryReleaser> releaser_of(const LaneDriver& lane) const noexcept;
  /// Records for calls with many pairs.
  [[nodiscard]] ManyBatches& many_batches() noexcept { return lanes_.many_batches(); }
  [[nodiscard]] transport::MemoryDomain* memory_domain() const noexcept { return domain_.get(); }
  [[nodiscard]] const std::shared_ptr<transport::MemoryDomain>& domain() const noexcept {
    return domain_;
  }

  // Requests:
  /// Sends a request, and blocks until the server has answered, or until `deadline`. Returns a
  /// reply that is not a failure. `raw` receives the request as it was sent.
  Result<Answer> call(control::Request request, Operation operation, Deadline deadline,
                      std::vector<std::byte>* raw = nullptr);
  /// As above, with the engine's control deadline.
  Result<Answer> call(control::Request request, Operation operation);
  /// Requests a grant, beside older grants or instead of them. See RegionGrant::open().
  Result<OpenedGrant> open(const std::string& name, Rights rights, Deadline deadline, Opening how);
  /// Notifies the server of a write over mapped memory. Blocks until the server has accepted the
  /// notice.
  Status notify(const transport::Notice& notice, Deadline deadline);

  // The parts, for each other:
  [[nodiscard]] EventLoop& loop() const noexcept { return loop_; }
  [[nodiscard]] ControlChannel& channel() noexcept { return channel_; }
  [[nodiscard]] Handshake& handshake() noexcept { return handshake_; }
  [[nodiscard]] SessionLanes& lane_set() noexcept { return lanes_; }
  [[nodiscard]] GrantKeys& grant_keys() noexcept { return grant_keys_; }
  [[nodiscard]] ServerEvents& events() noexcept { return events_; }
  [[nodiscard]] HandlerDispatcher& dispatcher() noexcept { return dispatcher_; }
  [[nodiscard]] OpenRegions& open_regions() noexcept { return open_regions_; }
  [[nodiscard]] const OpenRegions& open_regions() const noexcept { return open_regions_; }
  [[nodiscard]] RevocationTracker& revocations() noexcept { return revocations_; }

  // Transitions, for the parts:
  /// As fail(), with the cause that is counted. `fault`: of an operation on one of the lanes.
  void lose_connection(Reason reason, End by, LaneFault fault, std::uint64_t connection) noexcept;
  /// Ends the session for good, if it has not ended yet.
  void end(Reason reason, End by) noexcept;
  /// Called by a thread that has found a lane broken, and has released it.
  void on_lane_broken() noexcept;
  /// The reconnector calls it when it has reached the server again. Returns the connection's
  /// number; 0: the session has ended.
  std::uint64_t begin_joining(std::shared_ptr<transport::ClientEndpoint> endpoint);
  /// The reconnector calls it when the session is up again, with `lanes`. False: the connection was
  /// lost again, or the session has ended.
  bool resume(std::vector<std::unique_ptr<transport::Lane>> lanes) noexcept;
  /// Sleeps for `pause`, or until the session ends. False: it has ended.
  bool sleep_unless_ended(std::chrono::nanoseconds pause) noexcept;
  /// For an operation over mapped memory that has found the session interrupted: see
  /// MappedMemoryDriver::SessionAwaiter.
  [[nodiscard]] std::optional<Outcome> await_return(const OperationRecord& operation) noexcept;
  /// For an operation that the driver keeps: see MappedMemoryDriver::SessionLook.
  [[nodiscard]] std::optional<Outcome> check_return(const OperationRecord& operation) noexcept;

 private:
  /// Serializes transitions. Its destructor calls the handlers of the application.
  class REMORA_SCOPED_CAPABILITY Transition {
   public:
    explicit Transition(SessionCore& session) noexcept REMORA_ACQUIRE(session.transition_mutex_);
    ~Transition() REMORA_RELEASE();
    Transition(const Transition&) = delete;
    Transition& operator=(const Transition&) = delete;

   private:
    SessionCore& session_;
  };
  [[nodiscard]] SessionState state() const noexcept {
    return state_.load(std::memory_order_acquire);
  }
  void set_state(SessionState next) noexcept REMORA_REQUIRES(mutex_);
  /// Whether the session was counted as begun.
  [[nodiscard]] bool has_begun() const noexcept {
    const MutexLock lock{mutex_};
    return begun_;
  }
  Status begin();
  void take_rail_back() noexcept;
  void fail_now(Reason reason, std::uint64_t connection) noexcept
      REMORA_REQUIRES(transition_mutex_);
  void lose_now(Reason reason, End by, LaneFault fault, std::uint64_t connection) noexcept
      REMORA_REQUIRES(transition_mutex_);
  void interrupt_now(Reason reason, End by, LaneFault fault) noexcept
      REMORA_REQUIRES(transition_mutex_);
  void end_now(Reason reason, End by, LaneFault fault) noexcept REMORA_REQUIRES(transition_mutex_);
  [[nodiscard]] bool leave_connection(SessionState next, Reason reason, End by) noexcept
      REMORA_REQUIRES(transition_mutex_);
  [[nodiscard]] bool set_up_again() noexcept REMORA_REQUIRES(transition_mutex_);
  void say_goodbye() noexcept;
  Result<Answer> ask_for(const std::string& name, Rights rights, Opening how, Deadline deadline);

  std::shared_ptr<EngineServices> engine_;
  EventLoop& loop_;
  const ServerConnector connector_;
  const TransportKind kind_;
  std::shared_ptr<transport::MemoryDomain> domain_;
  std::optional<ClientMetrics> metrics_;

  /// Locked during a transition, by Transition only.
  TransitionMutex transition_mutex_ REMORA_ACQUIRED_BEFORE(mutex_);
  RailHold rail_hold_ REMORA_GUARDED_BY(transition_mutex_);
  mutable Mutex mutex_;
  std::atomic<SessionState> state_{SessionState::kUp};  ///< changed only with mutex_ locked
  std::atomic<Reason> lost_reason_{Reason::kPeerGone};
  bool begun_ REMORA_GUARDED_BY(mutex_) = false;
  Condition state_changed_;  ///< used with mutex_

  Handshake handshake_;
  ControlChannel channel_;
  ServerEvents events_;
  HandlerDispatcher dispatcher_;
  KeepAlive keep_alive_;
  GrantKeys grant_keys_;
  SessionLanes lanes_;
  Reconnector reconnector_;
  OpenRegions open_regions_;
  RevocationTracker revocations_;
};

}  // namespace remora::detail
