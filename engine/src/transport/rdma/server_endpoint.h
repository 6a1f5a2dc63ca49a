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

/// One client's control channel, lanes and grants, the server's side.
class RdmaServerEndpoint final : public ServerEndpoint,
                                 private DelayedDestruction,
                                 private DeviceSession,
                                 private LaneKeyRenewal,
                                 private GrantDomain::Member {
 public:
  /// `reaper`: destroys what the device may be slow with. `domains`: of the server's clients;
  /// `domain`: of this connection alone, see join_client(). `budget`: of registrations. `leased`:
  /// null without windows on this device. `events`: of `buffers` and `connection`.
  RdmaServerEndpoint(std::shared_ptr<LaneRegistry> lane_registry, std::shared_ptr<Reaper> reaper,
                     std::shared_ptr<GrantDomains> domains, verbs::ProtectionDomain domain,
                     std::shared_ptr<Budget> budget, std::shared_ptr<const LeasedMemory> leased,
                     ControlBuffers buffers, verbs::Connection connection, FdSet events);
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
  /// There is room for all answers that a client may wait for, but they free it only when the
  /// device has heard that they were taken.
  bool has_room(Deadline deadline) noexcept override {
    return channel_ && channel_->buffers.wait_for_room(deadline).ok();
  }
  void flush(Deadline deadline) noexcept override {
    if (channel_) channel_->buffers.flush(deadline);
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

  /// Takes a lane that a client asked the listener for. Control thread. `said`: its number, if the
  /// client says it. `settings`: of the server's half of it. `budgets`: of the device of the
  /// request, for a session with rails. An error leaves `request` to be rejected.
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
  /// The lanes and grants of this session are in `domain` from now on; it has none yet. False: the
  /// domain is retired, and nothing has changed. Worker.
  bool move_to(const std::shared_ptr<GrantDomain>& domain);
  Result<Grant> grant_windows(const GrantRequest& request);
  Status renew_windows(Grant& grant);
  /// Revokes what was made for a grant that is refused. Where that fails, ends this session's lanes
  /// and those of the sessions that share its domain, for good, and **blocks** until they are
  /// destroyed: the memory may be another client's next. Thread of grant().
  void give_up(GrantHandle& refused) noexcept;
  [[nodiscard]] std::shared_ptr<const LeasedMemory> leased();
  [[nodiscard]] std::shared_ptr<SessionRails> rails();
  Result<Grant> grant_on_rails(SessionRails& rails, const GrantRequest& request);
  /// Registers the grant on the devices of the lanes, and tells its keys. `everywhere`: it is an
  /// error where one of them has no room; else the keys of its lanes are 0 there, unless no device
  /// has room.
  Status renew_on_rails(SessionRails& rails, RailGrant& handle, Grant& grant, bool everywhere);
  [[nodiscard]] std::vector<SessionRails::Place> places_of_lanes(const SessionRails& rails);
  /// The domain of the next lane, which is of `device`.
  [[nodiscard]] Result<verbs::ProtectionDomain> lane_domain(const verbs::Device& device,
                                                            const GrantBudgets& budgets)
      REMORA_REQUIRES(mutex_);
  /// With rails: the client tries another rail for the lane of that number. It has given up the one
  /// that there is, if there is one: the server's answer was late, or was lost.
  void end_given_up(std::uint32_t number) noexcept REMORA_REQUIRES(mutex_);
  [[nodiscard]] bool hit_on_rails(const DeviceFailure& failure) noexcept REMORA_REQUIRES(mutex_);
  /// Whether the failure of a lane or the channel is kept back for a while. In a session with rails
  /// the lanes on other devices serve on: the client lets what is posted there complete, and
  /// resumes the session.
  [[nodiscard]] bool keeps_back() noexcept REMORA_REQUIRES(mutex_);
  /// The key of each extent for each lane that there is.
  void set_lane_keys(Grant& grant);
  [[nodiscard]] static Error gone() {
    return Error{Code::kConnectionLost, "channel"}.with_reason(Reason::kPeerGone);
  }
  /// Of a grant whose client goes on with an address that it cannot have.
  [[nodiscard]] static Error other_address() {
    return Error{Code::kAccessRefused, "attach again"}.with_reason(Reason::kRevoked);
  }
  /// Those there are now. No window is bound with mutex_ held.
  [[nodiscard]] WindowLanes window_lanes();
  /// Errors: kLimitExceeded; kProtocol: the session, which has no rails, has that one.
  [[nodiscard]] Result<std::uint32_t> number_of_next(std::optional<std::uint32_t> said) const
      REMORA_REQUIRES(mutex_);
  [[nodiscard]] std::shared_ptr<GrantDomain> domain();
  /// Takes the notices that a lane's receives have brought, as long as there is room for them. A
  /// receive that failed says that the lane is dead, here and from then on.
  Status collect(ServerLane& lane) REMORA_REQUIRES(mutex_);
  Status take_one(ServerLane& lane, const verbs::Completion& completion) REMORA_REQUIRES(mutex_);
  /// What the lane has acknowledged until its end, however much waits already.
  void take_last(ServerLane& lane, Deadline until) noexcept REMORA_REQUIRES(mutex_);

  std::shared_ptr<LaneRegistry> lane_registry_;
  std::shared_ptr<Reaper> reaper_;
  const std::shared_ptr<GrantDomains> domains_;
  const std::shared_ptr<Budget> budget_;  ///< of registrations
  /// Null: no windows on this device, or it has been left.
  std::shared_ptr<const LeasedMemory> leased_ REMORA_GUARDED_BY(mutex_);
  std::atomic<bool> by_windows_{false};  ///< grants are; written before there are any, or lanes
  bool renews_keys_ = false;             ///< the client asks for keys after a resume; worker
  std::optional<BudgetShare> share_;     ///< of the control channel's buffers; a client's only
  /// Of grants that are registrations, and of their lanes. Null after leave_device().
  std::shared_ptr<GrantDomain> domain_ REMORA_GUARDED_BY(mutex_);
  FdSet events_;
  std::string peer_;
  std::string device_;
  remora::detail::Mutex mutex_;  ///< the control thread takes it, and any thread in shutdown()
  /// Sends and receives without mutex_; its events are taken, and it is disconnected, with it.
  /// Nothing after leave_device().
  std::optional<ControlRemains> channel_;
  bool over_ REMORA_GUARDED_BY(mutex_) = false;  ///< shut down: no lane is added any more
  std::vector<ServerLane> lanes_ REMORA_GUARDED_BY(mutex_);
  std::vector<ServerLane> dead_ REMORA_GUARDED_BY(mutex_);  ///< until destroy_lanes()
  std::shared_ptr<LaneDestruction> destruction_ = std::make_shared<LaneDestruction>();
  std::deque<Notice> notices_ REMORA_GUARDED_BY(mutex_);
  /// Of domain_, and kept while the device is away: the session's next endpoint goes on with it.
  /// Worker.
  std::shared_ptr<GivenUpKeys> given_up_;
  /// shutdown() could not move a lane to its error state.
  std::atomic<bool> lanes_may_serve_{false};
  /// Null: all lanes are of the channel's device.
  std::shared_ptr<SessionRails> rails_ REMORA_GUARDED_BY(mutex_);
  TimerFd kept_back_timer_;  ///< with rails: when keeps_back() is over
  std::optional<Deadline> kept_back_until_ REMORA_GUARDED_BY(mutex_);
  std::optional<Error> channel_end_ REMORA_GUARDED_BY(mutex_);  ///< with rails: kept back
};

}  // namespace remora::transport::rdma
