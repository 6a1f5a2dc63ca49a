#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <remora/verbs/verbs.h>

#include "base/fd_set.h"
#include "transport/rdma/budget.h"
#include "transport/rdma/control.h"
#include "transport/rdma/lane.h"
#include "transport/rdma/reaper.h"
#include "transport/rdma/windows.h"
#include "transport/server_endpoint.h"

namespace remora::transport::rdma {

class RdmaServerEndpoint;

/// Which session a lane belongs to. Any thread.
class LaneRegistry {
 public:
  void expect(const LaneTicket& ticket, RdmaServerEndpoint* endpoint) {
    const std::lock_guard lock{mutex_};
    sessions_[ticket.session_id] = {ticket.secret, endpoint};
  }
  void forget(RdmaServerEndpoint* endpoint) {
    const std::lock_guard lock{mutex_};
    std::erase_if(sessions_, [&](const auto& entry) { return entry.second.endpoint == endpoint; });
  }
  /// Calls `serve(endpoint)` while the endpoint cannot go away. False: no such session.
  template <typename Serve>
  bool with(const LaneTicket& ticket, Serve&& serve) {
    const std::lock_guard lock{mutex_};
    const auto found = sessions_.find(ticket.session_id);
    if (found == sessions_.end() || found->second.secret != ticket.secret) return false;
    serve(*found->second.endpoint);
    return true;
  }

 private:
  struct Expected {
    std::uint64_t secret;
    RdmaServerEndpoint* endpoint;
  };
  std::mutex mutex_;
  std::map<std::uint64_t, Expected> sessions_;
};

/// A data queue pair: it serves by itself. Its receives take notices, and are flushed when it dies,
/// which is the only notice of that which every device gives.
struct ServerLane {
  verbs::CompletionQueue queue;
  std::unique_ptr<std::array<NoticeBytes, kNoticeReceives>> buffers;
  BudgetShare share;
  verbs::MemoryRegion memory;           // of the buffers
  std::uint32_t number = 0;             ///< of the session's lanes, from 0
  std::shared_ptr<WindowLane> windows;  ///< null: grants are registrations
  std::optional<verbs::Connection> connection;
  Status end{};  ///< what was wrong with it, whoever has seen that first

  Status post_receive(verbs::QueuePair<verbs::Rc>& pair, std::uint64_t index) const {
    return pair.post_receive(index, memory.slice(index * kNoticeWireBytes, kNoticeWireBytes));
  }
};

/// What a reaper has yet to destroy of an endpoint's lanes. Thread-safe.
class LaneDestruction {
 public:
  /// One of them, for as long as this is there.
  class Mark {
   public:
    explicit Mark(std::shared_ptr<LaneDestruction> burial) noexcept : burial_{std::move(burial)} {
      const std::lock_guard lock{burial_->mutex_};
      ++burial_->left_;
    }
    Mark(Mark&&) noexcept = default;
    Mark& operator=(Mark&&) = delete;
    ~Mark() {
      if (burial_ == nullptr) return;
      const std::lock_guard lock{burial_->mutex_};
      if (--burial_->left_ == 0) burial_->over_.notify_all();
    }

   private:
    std::shared_ptr<LaneDestruction> burial_;
  };
  void wait() {
    std::unique_lock lock{mutex_};
    over_.wait(lock, [this] { return left_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable over_;
  std::size_t left_ = 0;
};

/// One client's control channel, lanes and grants, the server's side.
class RdmaServerEndpoint final : public ServerEndpoint, private LaneKeyRenewal {
 public:
  /// `reaper`: destroys what the device may be slow with. `budget`: of registrations. `lent`: null
  /// without windows on this device. `events`: of `buffers` and `connection`.
  RdmaServerEndpoint(std::shared_ptr<LaneRegistry> desk, std::shared_ptr<Reaper> reaper,
                     verbs::ProtectionDomain domain, std::shared_ptr<Budget> budget,
                     std::shared_ptr<const LeasedMemory> lent, ControlBuffers buffers,
                     verbs::Connection connection, FdSet events);
  ~RdmaServerEndpoint() override;

  [[nodiscard]] TransportKind kind() const noexcept override { return TransportKind::kRdma; }
  [[nodiscard]] const std::string& peer() const noexcept override { return peer_; }
  [[nodiscard]] const std::string& device() const noexcept override { return device_; }
  [[nodiscard]] int event_fd() const noexcept override { return events_.get(); }

  Result<std::optional<ControlMessage>> receive() noexcept override;
  std::size_t take_notices(std::span<Notice> notices) noexcept override;
  Status send(ControlMessage message) noexcept override {
    return buffers_.send(connection_.queue_pair(), message.bytes, Clock::now());
  }
  /// There is room for all answers that a client may wait for, but they free it only when the
  /// device has heard that they were taken.
  bool has_room(Deadline deadline) noexcept override {
    return buffers_.wait_for_room(deadline).ok();
  }
  void flush(Deadline deadline) noexcept override { buffers_.flush(deadline); }
  void expect_lanes(const LaneTicket& ticket) noexcept override;
  LaneKeyRenewal* use_lane_keys() noexcept override {
    by_windows_ = lent_ != nullptr;
    return by_windows_ ? this : nullptr;
  }

  /// Takes a lane that the listener was asked for. Control thread. `said`: its number, if the
  /// client tells it.
  Status add_lane(verbs::ConnectionRequest request, std::optional<std::uint32_t> said);

  Result<Grant> grant(const GrantRequest& request) noexcept override;
  void shutdown() noexcept override;
  void destroy_lanes() noexcept override;
  void await_destroyed() noexcept override { burial_->wait(); }
  Status take_over(ServerEndpoint& before) noexcept override;

 private:
  Status renew(Grant& grant) noexcept override;
  Result<Grant> grant_windows(const GrantRequest& request);
  /// Those there are now. Nobody binds with the lock.
  [[nodiscard]] WindowLanes window_lanes();
  /// With the lock. Errors: kLimitExceeded; kProtocol: the session has that one.
  [[nodiscard]] Result<std::uint32_t> number_of_next(std::optional<std::uint32_t> said) const;
  [[nodiscard]] verbs::ProtectionDomain domain();
  /// Takes the notices that a lane's receives have brought, as long as there is room for them. A
  /// receive that failed says that the lane is dead, here and from then on.
  Status collect(ServerLane& lane);
  Status take_one(ServerLane& lane, const verbs::Completion& completion);
  /// What the lane has acknowledged until its end, however much waits already.
  void take_last(ServerLane& lane, Deadline until) noexcept;

  std::shared_ptr<LaneRegistry> desk_;
  std::shared_ptr<Reaper> reaper_;
  const std::shared_ptr<Budget> budget_;            ///< of registrations
  const std::shared_ptr<const LeasedMemory> lent_;  ///< null: no windows on this device
  std::atomic<bool> by_windows_{false};  ///< grants are; written before there are any, or lanes
  std::optional<BudgetShare> share_;     ///< of the control channel's buffers; a client's only
  verbs::ProtectionDomain
      domain_;  ///< of grants, if not, and their lanes; under mutex_ once in use
  ControlBuffers buffers_;
  FdSet events_;
  std::string peer_;
  std::string device_;
  std::mutex mutex_;  // connections and lanes: control thread, and shutdown from any
  verbs::Connection connection_;
  bool over_ = false;  ///< shut down: no lane is added any more
  std::vector<ServerLane> lanes_;
  std::vector<ServerLane> dead_;  ///< until destroy_lanes()
  std::shared_ptr<LaneDestruction> burial_ = std::make_shared<LaneDestruction>();
  std::deque<Notice> notices_;
};

}  // namespace remora::transport::rdma
