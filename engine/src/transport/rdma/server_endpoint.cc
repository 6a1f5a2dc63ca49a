#include "transport/rdma/server_endpoint.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include <remora/assert.h>

#include "base/log.h"
#include "transport/rdma/completion_vector.h"
#include "transport/rdma/device_choice.h"
#include "transport/rdma/fabric_settings.h"

namespace remora::transport::rdma {

namespace {

/// Arms the lane's queue: from here on a notice makes an event, unless it has arrived already.
Status listen(ServerLane& lane) {
  if (auto taken = lane.queue.take_events(); !taken) return taken.error();
  return lane.queue.arm();
}

Status check(verbs::Connection& connection) noexcept {
  while (true) {
    auto event = connection.next_event();
    if (!event) return event.error();
    if (connection.failure()) return connection.failure()->error(connection.peer_address());
    if (!event->has_value()) return {};
  }
}

/// The rights of clients on a lane. Devices without atomics refuse a queue pair with the right to
/// atomics, or accept it and refuse its atomics.
verbs::Access lane_access(const verbs::Device& device) noexcept {
  verbs::Access access =
      verbs::Access::kRemoteRead | verbs::Access::kRemoteWrite | verbs::Access::kLocalWrite;
  if (device.attributes().atomics != verbs::AtomicSupport::kNone)
    access |= verbs::Access::kRemoteAtomic;
  return access;
}

Error keys_left() {
  return Error{Code::kUnsupported, "resume of a session whose keys could not be taken back"};
}

/// The mark is the member that is destroyed last.
struct EndedLane {
  LaneDestruction::Mark mark;
  ServerLane lane;
};

}  // namespace

RdmaServerEndpoint::RdmaServerEndpoint(std::shared_ptr<LaneRegistry> lane_registry,
                                       std::shared_ptr<Reaper> reaper,
                                       std::shared_ptr<GrantDomains> domains,
                                       std::shared_ptr<Budget> budget,
                                       std::shared_ptr<const LeasedMemory> leased,
                                       ControlBuffers buffers, verbs::Connection connection,
                                       FdSet events)
    : lane_registry_{std::move(lane_registry)},
      reaper_{std::move(reaper)},
      domains_{std::move(domains)},
      budget_{std::move(budget)},
      leased_{std::move(leased)},
      domain_{domains_->own(connection.device())},
      events_{std::move(events)},
      peer_{connection.peer_address().to_string()},
      device_{domain_->device().name()},
      channel_{ControlRemains{std::move(buffers), std::move(connection)}},
      given_up_{domain_->given_up()} {
  (void)domain_->enter(*this);  // a new domain takes it
}

RdmaServerEndpoint::~RdmaServerEndpoint() {
  // First, so that from then on no other session ends its lanes.
  if (const auto left = domain()) left->leave(*this);
  lane_registry_->forget(this);
  for (ServerLane& lane : lanes_) dead_.push_back(std::move(lane));
  destroy_lanes();
  if (channel_) reaper_->take_unawaited(std::move(*channel_));
}

Result<std::optional<ControlMessage>> RdmaServerEndpoint::receive() noexcept {
  if (!channel_) return gone();
  Result<std::optional<ControlMessage>> message =
      channel_->buffers.receive(channel_->connection.queue_pair());
  if (message && message->has_value()) return message;
  const remora::detail::MutexLock lock{mutex_};
  if (!message && rails_ != nullptr && !channel_end_) channel_end_ = message.error();
  // Lanes first, so that notices that arrived before the end are taken, too.
  Status status;
  for (ServerLane& lane : lanes_) {
    auto collected = listen(lane);
    if (collected) collected = collect(lane);
    if (collected) continue;
    if (status) status = collected;
    // Its descriptors may stay readable while the report of its end is delayed.
    if (rails_ == nullptr || !std::exchange(lane.watched, false)) continue;
    events_.remove(lane.queue.event_fd());
    events_.remove(lane.connection->event_fd());
  }
  for (ServerLane& lane : lanes_)
    if (auto checked = check(*lane.connection); !checked && status) status = checked;
  if (auto checked = check(channel_->connection); !checked && status) status = checked;
  if (status && rails_ != nullptr && rails_->any_gone()) status = gone();
  if (channel_end_) {
    events_.remove(channel_->buffers.event_fd());
    message = *channel_end_;
  }
  // hit_by() may have delayed the report of a failure that is not visible here.
  const bool fails = !message || !status || kept_back_until_;
  if (fails && keeps_back()) return std::optional<ControlMessage>{};
  if (message && fails) return status ? gone() : status.error();
  return message;
}

std::size_t RdmaServerEndpoint::take_notices(std::span<Notice> notices) noexcept {
  const remora::detail::MutexLock lock{mutex_};
  // Does not take the lane's event: receive() must learn of a lane that has died.
  if (notices_.empty())
    for (ServerLane& lane : lanes_) (void)collect(lane);
  const std::size_t count = std::min(notices.size(), notices_.size());
  std::copy_n(notices_.begin(), count, notices.begin());
  notices_.erase(notices_.begin(), notices_.begin() + static_cast<std::ptrdiff_t>(count));
  return count;
}

Status RdmaServerEndpoint::add_lane(verbs::ConnectionRequest& request,
                                    std::optional<std::uint32_t> said,
                                    const config::RdmaSettings& settings,
                                    const GrantBudgets& budgets) {
  const remora::detail::MutexLock lock{mutex_};
  if (over_ || domain_ == nullptr)
    return Error{Code::kConnectionLost, "lane of a session that is over"};
  if (said && rails_ != nullptr) end_given_up(*said);
  const auto number = number_of_next(said);
  if (!number) return number.error();
  // A session that has grants must be able to return to them.
  auto share =
      BudgetShare::count(budgets.registrations == nullptr ? budget_ : budgets.registrations, 1);
  const auto made_domain = lane_domain(request.device(), budgets);
  if (!made_domain) return made_domain.error();
  const verbs::ProtectionDomain& domain = *made_domain;
  const verbs::Device& device = domain.device();
  auto queue = device.create_completion_queue(
      {.depth = kNoticeReceives + 4, .events = true, .vector = next_completion_vector(device)});
  if (!queue) return queue.error();
  auto buffers = std::make_unique<std::array<NoticeBytes, kNoticeReceives>>();
  auto memory = domain.register_bytes(std::as_writable_bytes(std::span{*buffers}),
                                      verbs::Access::kLocalWrite);
  if (!memory) return memory.error();
  std::shared_ptr<WindowLane> windows;
  if (by_windows_) {
    auto made = WindowLane::create(device);
    if (!made) return made.error();
    windows = std::move(*made);
  }
  verbs::QueuePairBuilder<verbs::Rc> builder{domain, windows == nullptr ? *queue : windows->queue(),
                                             *queue};
  builder.send_depth(windows == nullptr ? 1 : WindowLane::kBinds)
      .receive_depth(kNoticeReceives)
      .access(lane_access(device));
  if (auto status = apply(settings, device, request.port(), builder); !status) return status;
  limit_depths(builder, Asks::kClient, false);
  if (auto status = request.create_queue_pair(builder); !status) return status;
  ServerLane lane{std::move(*queue), std::move(buffers), std::move(share), std::move(*memory),
                  *number,           std::move(windows), std::nullopt};
  for (std::uint64_t index = 0; index < kNoticeReceives; ++index)
    if (auto status = lane.post_receive(request.queue_pair(), index); !status) return status;
  if (auto status = lane.queue.arm(); !status) return status;
  auto connection = std::move(request).accept();
  if (!connection) return connection.error();
  log_depths("server lane", *connection);
  lane.connection.emplace(std::move(*connection));
  for (const int fd : {lane.queue.event_fd(), lane.connection->event_fd()})
    if (auto status = events_.add(fd); !status) return status;
  if (lane.windows != nullptr) lane.windows->begin(lane.connection->queue_pair());
  lanes_.push_back(std::move(lane));
  return {};
}

/// From here on the connection belongs to a client, and its buffers count. Connections before their
/// handshake have a limit of their own (limits.pending_handshakes_max), and do not use the budgets
/// of clients' grants.
void RdmaServerEndpoint::expect_lanes(const LaneTicket& ticket) noexcept {
  if (!share_) share_ = BudgetShare::count(budget_, 1);
  lane_registry_->expect(ticket, this);
}

bool RdmaServerEndpoint::hit_by(const DeviceFailure& failure) noexcept {
  const remora::detail::MutexLock lock{mutex_};
  if (rails_ != nullptr) return hit_on_rails(failure);
  if (failure.device != device_) return false;
  if (failure.queue_pair == 0 && failure.queue == nullptr)
    return domain_ != nullptr && domain_->device().gone();
  const auto is_of = [&](const verbs::Connection& connection) {
    return connection.queue_pair().number() == failure.queue_pair;
  };
  if (failure.queue_pair != 0 && channel_ && is_of(channel_->connection)) return true;
  return std::any_of(lanes_.begin(), lanes_.end(), [&](const ServerLane& lane) {
    if (failure.queue_pair != 0) return is_of(*lane.connection);
    return lane.queue.raw() == failure.queue;
  });
}

bool RdmaServerEndpoint::device_gone() noexcept {
  const remora::detail::MutexLock lock{mutex_};
  if (rails_ != nullptr && rails_->any_gone()) return true;
  return domain_ != nullptr && domain_->device().gone();
}

void RdmaServerEndpoint::leave_device() noexcept {
  shutdown();
  destroy_lanes();
  // Destroyed without the lock: end_members() takes that lock while it holds the domain's own.
  const std::shared_ptr<GrantDomain> left = domain();
  if (left != nullptr) left->leave(*this);
  const remora::detail::MutexLock lock{mutex_};
  if (channel_) reaper_->take_unawaited(std::move(*channel_));
  channel_.reset();
  domain_.reset();
  leased_.reset();
  if (rails_ != nullptr) rails_->leave_gone();
}

void RdmaServerEndpoint::shutdown() noexcept {
  lane_registry_->forget(this);
  const remora::detail::MutexLock lock{mutex_};
  over_ = true;
  for (const ServerLane& lane : lanes_)
    if (!lane.connection->queue_pair().to_error()) lanes_may_serve_.store(true);
  // Receives complete in order. The first that fails is the end of the lane's notices; a device may
  // take a moment until then, and a device that has gone completes nothing any more.
  constexpr std::chrono::milliseconds kFlushTime{5};
  const Clock::time_point began = Clock::now();
  for (ServerLane& lane : lanes_)
    take_last(lane, lane.connection->device().gone() ? began : began + kFlushTime);
  // In its error state a queue pair executes nothing any more, and completes the requests that the
  // worker may be waiting for. The worker destroys it, which may take as long as the interface is
  // down; its windows, of which there may be very many, are freed before it.
  for (ServerLane& lane : lanes_) {
    if (lane.windows != nullptr) lane.windows->stop();
    dead_.push_back(std::move(lane));
  }
  lanes_.clear();
  if (channel_) (void)channel_->connection.disconnect();
}

void RdmaServerEndpoint::destroy_lanes() noexcept {
  std::vector<ServerLane> dead;
  bool has_rails = false;
  {
    const remora::detail::MutexLock lock{mutex_};
    dead.swap(dead_);
    has_rails = rails_ != nullptr;
  }
  for (ServerLane& lane : dead) {
    if (lane.windows != nullptr) lane.windows->end();
    // A session with rails continues over another device. While the link is down no request can
    // arrive, and destruction may take as long as it is down: no worker waits for that, unless the
    // lane may serve requests when the link is up again.
    if (has_rails && !lanes_may_serve_.load() && why_unusable(lane.connection->device())) {
      reaper_->take_unawaited(std::move(lane));
      continue;
    }
    reaper_->take(EndedLane{LaneDestruction::Mark{destruction_}, std::move(lane)});
  }
}

Status RdmaServerEndpoint::take_over(ServerEndpoint& before) noexcept {
  auto* const old = dynamic_cast<RdmaServerEndpoint*>(&before);
  const auto their_rails = old == nullptr ? nullptr : old->rails();
  const auto own_rails = rails();
  if (their_rails != nullptr && own_rails != nullptr) {
    if (their_rails->retired()) return keys_left();
    // Its grants are registered with each device; drop the registrations on devices that have gone.
    their_rails->leave_gone();
    const remora::detail::MutexLock lock{mutex_};
    rails_ = their_rails;
    return {};
  }
  if (old == nullptr || old->device_ != device_ || their_rails != own_rails)
    return Error{Code::kUnsupported, "resume over another transport or device"};
  if (by_windows_ != old->by_windows_)
    return Error{Code::kUnsupported, "resume by a client that uses keys in another way"};
  const std::shared_ptr<GrantDomain> own = domain();
  if (own == nullptr) return gone();
  // Its registrations are in its domain, and so are the new lanes: the keys stay valid. Windows
  // have gone with their lanes, and are bound again when the client asks for their keys.
  // Registrations with a device that has gone and returned are made again then, too.
  const std::shared_ptr<GrantDomain> theirs = old->domain();
  if (theirs != nullptr && theirs->device() == own->device()) {
    if (!move_to(theirs)) return keys_left();
    return {};
  }
  if (!renews_keys_)
    return Error{Code::kUnsupported, "resume over a device that has gone and returned"};
  given_up_->add_all(*old->given_up_);
  return {};
}

void RdmaServerEndpoint::join_client(std::string_view name, const config::SecretKey& key) noexcept {
  const std::shared_ptr<GrantDomain> own = domain();
  // Windows isolate the lanes of different sessions in one domain. A session with rails shares
  // nothing: its grants have addresses and domains of their own.
  if (own == nullptr || by_windows_ || rails() != nullptr) return;
  if (!move_to(domains_->of(own->device(), name, key)))
    log::debug("rdma: {}: its registrations are not shared with other sessions of its client",
               peer_);
}

bool RdmaServerEndpoint::move_to(const std::shared_ptr<GrantDomain>& domain) {
  if (!domain->enter(*this)) return false;
  std::shared_ptr<GrantDomain> before = domain;
  {
    const remora::detail::MutexLock lock{mutex_};
    REMORA_ASSERT(lanes_.empty(), "a lane stays in the domain in which it was made");
    domain_.swap(before);
  }
  if (before != nullptr && before != domain) before->leave(*this);
  given_up_ = domain->given_up();
  return true;
}

std::function<void()> RdmaServerEndpoint::end_lanes() {
  shutdown();
  destroy_lanes();
  return [destruction = destruction_] { destruction->wait(); };
}

void RdmaServerEndpoint::end_sharing_sessions() noexcept {
  if (const auto shared = domain()) shared->end_members();
}

WindowLanes RdmaServerEndpoint::window_lanes() {
  const remora::detail::MutexLock lock{mutex_};
  WindowLanes lanes;
  for (const ServerLane& lane : lanes_) {
    if (lanes.size() <= lane.number) lanes.resize(lane.number + 1);
    lanes[lane.number] = lane.windows;
  }
  return lanes;
}

Result<std::uint32_t> RdmaServerEndpoint::number_of_next(std::optional<std::uint32_t> said) const {
  if (lanes_.size() >= kMaxLanes)
    return Error{Code::kLimitExceeded, "lanes"}.with_limit(lanes_.size() + 1, kMaxLanes);
  const auto taken = [&](std::uint32_t number) {
    mutex_.assert_held();
    return std::any_of(lanes_.begin(), lanes_.end(),
                       [&](const ServerLane& lane) { return lane.number == number; });
  };
  if (said && taken(*said)) return Error{Code::kProtocol, "lane of a number that there is"};
  // A client that does not tell the number opens lanes in order.
  std::uint32_t number = said.value_or(0);
  while (taken(number)) ++number;
  return number;
}

std::shared_ptr<GrantDomain> RdmaServerEndpoint::domain() {
  const remora::detail::MutexLock lock{mutex_};
  return domain_;
}

Status RdmaServerEndpoint::collect(ServerLane& lane) {
  while (lane.end && notices_.size() < kMaxNotices) {
    std::array<verbs::Completion, 1> storage;
    auto found = lane.queue.poll(storage);
    if (found && found->empty()) break;
    lane.end = found ? take_one(lane, found->front()) : Status{found.error()};
  }
  return lane.end;
}

Status RdmaServerEndpoint::take_one(ServerLane& lane, const verbs::Completion& completion) {
  if (!completion.ok()) {
    lane.flushed = true;
    return Error{Code::kConnectionLost, "lane"}
        .with_reason(Reason::kLaneBroken)
        .with_completion(completion.status(), completion.vendor_error());
  }
  const auto notice = lane.notice_of(completion);
  if (!notice) return notice.error();
  notices_.push_back(*notice);
  return lane.post_receive(lane.connection->queue_pair(), completion.id());
}

void RdmaServerEndpoint::take_last(ServerLane& lane, Deadline until) noexcept {
  std::array<verbs::Completion, 1> storage;
  for (std::size_t left = kNoticeReceives; left > 0 && !lane.flushed;) {
    const auto found = lane.queue.poll(storage);
    if (!found) return;
    if (found->empty()) {
      if (Clock::now() >= until) return;
      std::this_thread::sleep_for(std::chrono::microseconds{100});
      continue;
    }
    --left;
    const verbs::Completion& completion = found->front();
    lane.flushed = !completion.ok();
    if (lane.flushed) continue;
    const auto notice = lane.notice_of(completion);
    if (!notice) return;
    notices_.push_back(*notice);
  }
}

}  // namespace remora::transport::rdma
