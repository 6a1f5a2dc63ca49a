#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <remora/config/rdma_settings.h>
#include <remora/config/secret_key.h>
#include <remora/mutex.h>
#include <remora/verbs/verbs.h>

#include "base/fd_set.h"
#include "base/timer_fd.h"
#include "transport/delayed_destruction.h"
#include "transport/device_session.h"
#include "transport/lane_key_renewal.h"
#include "transport/listener.h"
#include "transport/rdma/budget.h"
#include "transport/rdma/budget_share.h"
#include "transport/rdma/control_buffers.h"
#include "transport/rdma/given_up_keys.h"
#include "transport/rdma/grant_domain.h"
#include "transport/rdma/grant_domains.h"
#include "transport/rdma/grant_share.h"
#include "transport/rdma/lane.h"
#include "transport/rdma/lane_destruction.h"
#include "transport/rdma/lane_registry.h"
#include "transport/rdma/leased_memory.h"
#include "transport/rdma/rail_grant.h"
#include "transport/rdma/reaper.h"
#include "transport/rdma/server_lane.h"
#include "transport/rdma/session_rails.h"
#include "transport/rdma/window_lane.h"
#include "transport/server_endpoint.h"

namespace remora::transport::rdma {

/// The server's side of one client: control channel, lanes and grants.
class RdmaServerEndpoint final : public ServerEndpoint,
                                 private DelayedDestruction,
                                 private DeviceSession,
                                 private LaneKeyRenewal,
                                 private GrantDomain::Member {
 public:
  /// `reaper`: destroys objects that the device may be slow to destroy. `domains`: the domains of
  /// the server's clients. `budget`: of registrations. `leased`: null without windows on this
  /// device. `events`: the descriptors of `buffers` and `connection`.
  RdmaServerEndpoint(std::shared_ptr<LaneRegistry> lane_registry, std::shared_ptr<Reaper> reaper,
                     std::shared_ptr<GrantDomains> domains, std::shared_ptr<Budget> budget,
                     std::shared_ptr<const LeasedMemory> leased, ControlBuffers buffers,
                     verbs::Connection connection, FdSet events);
  ~RdmaServerEndpoint() override;

  [[nodiscard]] TransportKind kind() const noexcept override { return TransportKind::kRdma; }
  [[nodiscard]] const std::string& peer() const noexcept override { return peer_; }
  [[nodiscard]] const std::string& device() const noexcept override { return device_; }
  [[nodiscard]] int event_fd() const noexcept override { return events_.get(); }

  Result<std::optional<ControlMessage>> receive() noexcept override;
  std::size_t take_notices(std::span<Notice> notices) noexcept override;
  Status send(ControlMessage message) noexcept override {
    if (!channel_) return gone();
    return channel_->buffers.send(channel_->connection.queue_pair(), message.bytes, Clock::now());
  }
  /// There are buffers for all answers that a client may wait for, but a buffer is free again only
  /// when the device has been told that the client has taken the answer.
  bool has_room(Deadline deadline) noexcept override {
    return channel_ &&
           channel_->buffers.wait_for_room(channel_->connection.queue_pair(), deadline).ok();
  }
  void flush(Deadline deadline) noexcept override {
    if (channel_) channel_->buffers.flush(channel_->connection.queue_pair(), deadline);
  }
  void join_client(std::string_view name, const config::SecretKey& key) noexcept override;
  void expect_lanes(const LaneTicket& ticket) noexcept override;
  LaneKeyRenewal* use_lane_keys() noexcept override {
    by_windows_ = leased() != nullptr;
    renews_keys_ = true;
    return this;
  }
  [[nodiscard]] DeviceSession* device_session() noexcept override { return this; }
  [[nodiscard]] DelayedDestruction* delayed_destruction() noexcept override { return this; }
  bool use_rails() noexcept override;

  /// Adds a lane that a client has requested from the listener. Control thread. `said`: its number,
  /// if the client tells it. `settings`: of the server's half of the lane. `budgets`: of the device
  /// of the request, for a session with rails. After an error the caller rejects `request`.
  Status add_lane(verbs::ConnectionRequest& request, std::optional<std::uint32_t> said,
                  const config::RdmaSettings& settings = {}, const GrantBudgets& budgets = {});

  [[nodiscard]] bool registers(const GrantRequest& request) noexcept override;
  Result<Grant> grant(const GrantRequest& request) noexcept override;
  void shutdown() noexcept override;
  void destroy_lanes() noexcept override;
  void await_destroyed() noexcept override { destruction_->wait(); }
  [[nodiscard]] bool lanes_may_serve() const noexcept override { return lanes_may_serve_.load(); }
  void end_sharing_sessions() noexcept override;
  [[nodiscard]] bool hit_by(const DeviceFailure& failure) noexcept override;
  [[nodiscard]] bool device_gone() noexcept override;
  void leave_device() noexcept override;
  Status take_over(ServerEndpoint& before) noexcept override;

 private:
  [[nodiscard]] bool registers_again(const Grant& grant) noexcept override;
  Status renew(Grant& grant) noexcept override;
  std::function<void()> end_lanes() override;
  /// From now on the lanes and grants of this session are in `domain`; it has none yet. False: the
  /// domain is retired, and nothing has changed. Worker.
  bool move_to(const std::shared_ptr<GrantDomain>& domain);
  Result<Grant> grant_windows(const GrantRequest& request);
  Status renew_windows(Grant& grant);
  /// Revokes the registrations that were made for a grant that is refused. If that fails, ends the
  /// lanes of this session and of the sessions that share its domain, for good, and **blocks**
  /// until they are destroyed, since the memory may be granted to another client next. Called by
  /// the thread of grant().
  void give_up(GrantHandle& refused) noexcept;
  [[nodiscard]] std::shared_ptr<const LeasedMemory> leased();
  [[nodiscard]] std::shared_ptr<SessionRails> rails();
  Result<Grant> grant_on_rails(SessionRails& rails, const GrantRequest& request);
  /// Registers the grant with the devices of the lanes, and stores its keys in `grant`.
  /// `everywhere`: it is an error if one of the devices has no room; otherwise the keys of that
  /// device's lanes are 0, unless no device has room.
  Status renew_on_rails(SessionRails& rails, RailGrant& handle, Grant& grant, bool everywhere);
  [[nodiscard]] std::vector<SessionRails::Place> places_of_lanes(const SessionRails& rails);
  /// The domain of the next lane, which uses `device`.
  [[nodiscard]] Result<verbs::ProtectionDomain> lane_domain(const verbs::Device& device,
                                                            const GrantBudgets& budgets)
      REMORA_REQUIRES(mutex_);
  /// With rails: the client tries another rail for the lane of that number, so it has given up the
  /// lane that exists, if any: the server's answer was late or lost.
  void end_given_up(std::uint32_t number) noexcept REMORA_REQUIRES(mutex_);
  [[nodiscard]] bool hit_on_rails(const DeviceFailure& failure) noexcept REMORA_REQUIRES(mutex_);
  /// Whether the report of a failed lane or channel is delayed. In a session with rails the lanes
  /// on other devices continue: the client lets its posted requests complete there, and resumes the
  /// session.
  [[nodiscard]] bool keeps_back() noexcept REMORA_REQUIRES(mutex_);
  /// Sets the key of each extent for each lane that exists.
  void set_lane_keys(Grant& grant);
  [[nodiscard]] static Error gone() {
    return Error{Code::kConnectionLost, "channel"}.with_reason(Reason::kPeerGone);
  }
  /// The error of a grant whose client holds an address that the grant cannot have.
  [[nodiscard]] static Error other_address() {
    return Error{Code::kAccessRefused, "attach again"}.with_reason(Reason::kRevoked);
  }
  /// The lanes that exist now. No window is bound with mutex_ held.
  [[nodiscard]] WindowLanes window_lanes();
  /// Errors: kLimitExceeded; kProtocol: the session, which has no rails, already has the lane of
  /// that number.
  [[nodiscard]] Result<std::uint32_t> number_of_next(std::optional<std::uint32_t> said) const
      REMORA_REQUIRES(mutex_);
  [[nodiscard]] std::shared_ptr<GrantDomain> domain();
  /// Takes the notices that a lane's receives have brought, as long as there is room for them. A
  /// failed receive means that the lane is dead, now and in later calls.
  Status collect(ServerLane& lane) REMORA_REQUIRES(mutex_);
  Status take_one(ServerLane& lane, const verbs::Completion& completion) REMORA_REQUIRES(mutex_);
  /// Takes the notices that the lane has acknowledged until its end, even if there is no room left
  /// for them. Waits for that end until `until`, unless the end of the lane is known already.
  void take_last(ServerLane& lane, Deadline until) noexcept REMORA_REQUIRES(mutex_);

  std::shared_ptr<LaneRegistry> lane_registry_;
  std::shared_ptr<Reaper> reaper_;
  const std::shared_ptr<GrantDomains> domains_;
  const std::shared_ptr<Budget> budget_;  ///< the budget of registrations
  /// Null: no windows on this device, or the device has been left.
  std::shared_ptr<const LeasedMemory> leased_ REMORA_GUARDED_BY(mutex_);
  std::atomic<bool> by_windows_{false};  ///< grants are windows; written before any grant or lane
  bool renews_keys_ = false;             ///< the client asks for keys after a resume; of the worker
  std::optional<BudgetShare> share_;     ///< of the channel's buffers, once it is a client's
  /// The domain of grants that are registrations, and of their lanes; not of the channel. Null
  /// after leave_device().
  std::shared_ptr<GrantDomain> domain_ REMORA_GUARDED_BY(mutex_);
  FdSet events_;
  std::string peer_;
  std::string device_;
  remora::detail::Mutex mutex_;  ///< taken by the control thread, and in shutdown()
  /// Sends and receives without mutex_; its events are taken, and it is disconnected, with mutex_
  /// held. Empty after leave_device().
  std::optional<ControlRemains> channel_;
  bool over_ REMORA_GUARDED_BY(mutex_) = false;  ///< shut down: no lane is added any more
  std::vector<ServerLane> lanes_ REMORA_GUARDED_BY(mutex_);
  std::vector<ServerLane> dead_ REMORA_GUARDED_BY(mutex_);  ///< kept for destroy_lanes()
  std::shared_ptr<LaneDestruction> destruction_ = std::make_shared<LaneDestruction>();
  std::deque<Notice> notices_ REMORA_GUARDED_BY(mutex_);
  /// The keys of domain_, kept while the device is away: the session's next endpoint uses it, too.
  /// Worker.
  std::shared_ptr<GivenUpKeys> given_up_;
  /// shutdown() could not move a lane to its error state.
  std::atomic<bool> lanes_may_serve_{false};
  /// Null: all lanes are of the channel's device.
  std::shared_ptr<SessionRails> rails_ REMORA_GUARDED_BY(mutex_);
  TimerFd kept_back_timer_;  ///< with rails: fires when keeps_back() ends
  std::optional<Deadline> kept_back_until_ REMORA_GUARDED_BY(mutex_);
  std::optional<Error> channel_end_ REMORA_GUARDED_BY(mutex_);  ///< with rails: the delayed report
};

}  // namespace remora::transport::rdma
