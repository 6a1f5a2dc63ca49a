#include "server/server_core.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <limits>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <utility>

#include "support/log.h"
#include "support/placement.h"
#include "transport/nic_series.h"

namespace remora::detail {

using config::Availability;
using transport::Listener;

namespace {
constexpr std::chrono::milliseconds kListenerPause{20};
constexpr std::chrono::milliseconds kDrainPause{10};
constexpr std::chrono::milliseconds kLookPeriod{100};
/// Without a look for so long the server was itself stopped: what is queued is served before
/// anybody's silence counts.
constexpr std::chrono::seconds kOwnPause{1};
constexpr int kPortTries = 16;

std::vector<std::string> descriptions_of(const std::vector<std::unique_ptr<Listener>>& listeners) {
  std::vector<std::string> lines;
  lines.reserve(listeners.size());
  for (const auto& listener : listeners) lines.push_back(listener->description());
  return lines;
}

metrics::HttpOptions http_options(const config::Metrics& metrics,
                                  const std::shared_ptr<ServerStatusDesk>& desk) {
  metrics::HttpOptions options;
  options.address = *metrics.address;
  options.access = {.token = metrics.token, .user = metrics.user, .password = metrics.password};
  options.health = [desk] { return desk->health(); };
  options.unready = [desk] { return desk->unready(); };
  options.status = [desk] { return desk->json(); };
  return options;
}

Rights rights_of(bool read, bool write, bool atomic) {
  Rights rights = Rights::kNone;
  if (read) rights = rights | Rights::kRead;
  if (write) rights = rights | Rights::kWrite;
  if (atomic) rights = rights | Rights::kAtomic;
  return rights;
}

std::vector<RegionAccess> access_of(const config::RegionConfig& region) {
  std::vector<RegionAccess> list;
  list.reserve(region.access.size());
  for (const config::RegionAccess& each : region.access)
    list.push_back({.client = each.client,
                    .rights = rights_of(each.read, each.write, each.atomic),
                    .admin = each.admin});
  return list;
}

std::vector<TransportKind> kinds_of(const std::vector<std::unique_ptr<Listener>>& listeners) {
  std::vector<TransportKind> kinds;
  kinds.reserve(listeners.size());
  for (const auto& listener : listeners) kinds.push_back(listener->kind());
  return kinds;
}
}  // namespace

std::uint64_t random_id() {
  std::uint64_t id = 0;
  while (id == 0)
    if (::getrandom(&id, sizeof id, 0) != sizeof id) id = 0;
  return id;
}

Result<std::unique_ptr<ServerCore>> ServerCore::start(const config::ServerConfig& config,
                                                      std::shared_ptr<metrics::Registry> registry,
                                                      std::vector<RefusedTransport>* refused) {
  if (const config::Diagnostics wrong = config::validate(config); !wrong.empty())
    return Error{Code::kInvalidArgument, "configuration"}.with_subject(wrong[0].message);
  if (registry == nullptr) {
    auto made = metrics::Registry::create();
    if (!made) return made.error();
    registry = std::move(*made);
  }
  auto metrics = ServerMetrics::create(std::move(registry));
  if (!metrics) return metrics.error();
  auto doors = open_doors(config, metrics->registry(), refused);
  if (!doors) return doors.error();
  return start_behind(config, std::move(*metrics), std::move(*doors));
}

Result<std::unique_ptr<ServerCore>> ServerCore::start_behind(const config::ServerConfig& config,
                                                             ServerMetrics metrics, Doors doors) {
  // The pool lies with the device that serves it, where there are several memory nodes and one
  // device, or all of them, on one of them.
  auto placement =
      Placement::create(config.transports.rdma == config::Availability::kOff ? "none" : "auto",
                        config.transports.rdma_device);
  if (!placement) log::info("placement: {}", placement.error().message());
  auto pool = Pool::create(config.pool, placement ? *placement : Placement{});
  if (!pool) return pool.error();
  doors.protection.clear();
  for (const auto& listener : doors.listeners) {
    const auto registered = listener->lend((*pool)->pieces(), *pool);
    if (!registered) return registered.error();
    if (*registered) (*pool)->keep_pages();
    for (auto& each : listener->protection()) doors.protection.push_back(std::move(each));
  }
  auto core =
      std::make_unique<ServerCore>(config, std::move(metrics), std::move(*pool), std::move(doors));
  if (auto status = core->create_configured_regions(); !status) return status.error();
  if (auto status = core->export_pool(); !status) return status.error();
  if (auto status = core->begin(); !status) return status.error();
  return core;
}

ServerCore::ServerCore(config::ServerConfig config, ServerMetrics metrics,
                       std::shared_ptr<Pool> pool, Doors doors)
    : config_{std::move(config)},
      metrics_{std::move(metrics)},
      pool_{std::move(pool)},
      catalog_{pool_, config_.limits.regions_max},
      notifier_{metrics_},
      grants_{config_.limits.revoke_grace},
      memory_line_{[this](std::uint64_t size_bytes) { return pool_->must_wait(size_bytes); }},
      boot_id_{random_id()},
      memory_id_{random_id()},
      port_{doors.port},
      offered_{kinds_of(doors.listeners)},
      listeners_{std::move(doors.listeners)},
      listening_{descriptions_of(listeners_)},
      devices_{std::move(doors.devices)},
      protection_{std::move(doors.protection)},
      desk_{std::move(doors.desk)},
      metrics_address_{doors.http ? "http://" + doors.http->address() : std::string{}},
      http_{std::move(doors.http)},
      clients_{std::make_shared<ClientRegistry>(config_.clients)} {}

ServerCore::~ServerCore() {
  stop();
  notifier_.stop();  // once more, if it was a handler that stopped the server
}

Result<ServerCore::Doors> ServerCore::open_listeners(
    const config::ServerConfig& config, const std::shared_ptr<metrics::Registry>& registry,
    std::vector<RefusedTransport>& refused) {
  Doors doors;
  const auto add = [&](Availability wanted, TransportKind kind, auto&& listen) -> Status {
    if (wanted == Availability::kOff) return {};
    // All on one port: that of the first.
    Result<std::unique_ptr<Listener>> listener =
        listen(doors.port != 0 ? doors.port : config.listen.port);
    if (listener) {
      doors.port = (*listener)->port();
      for (std::string& device : (*listener)->devices()) doors.devices.push_back(std::move(device));
      doors.listeners.push_back(std::move(*listener));
      return {};
    }
    // A port that is taken is never what was meant, however little the transport is wanted; nor is
    // a server without the protection that was asked for by its name.
    if (wanted == Availability::kRequired || listener.error().code() == Code::kAddressInUse ||
        listener.error().subject().starts_with("transports.rdma_protection"))
      return listener.error();
    log::info("{} is not offered: {}", to_string(kind), listener.error().message());
    refused.push_back({kind, listener.error()});
    return {};
  };
  const config::Transports& wanted = config.transports;
  Status status = add(wanted.rdma, TransportKind::kRdma, [&](std::uint16_t /*port*/) {
    return transport::listen_rdma(config, registry);
  });
  if (status)
    status = add(wanted.tcp, TransportKind::kTcp,
                 [&](std::uint16_t port) { return transport::listen_tcp(config, port, registry); });
  if (status)
    status = add(wanted.shm, TransportKind::kShm,
                 [](std::uint16_t port) { return transport::listen_shm(port); });
  if (!status) return status.error();
  return doors;
}

Result<ServerCore::Doors> ServerCore::open_doors(const config::ServerConfig& config,
                                                 const std::shared_ptr<metrics::Registry>& registry,
                                                 std::vector<RefusedTransport>* refused) {
  std::vector<RefusedTransport> left_out;
  auto doors = open_listeners(config, registry, left_out);
  // The port that was free for the first transport may be taken for the next: another one, then.
  for (int i = 0; i < kPortTries && config.listen.port == 0 && !doors &&
                  doors.error().code() == Code::kAddressInUse;
       ++i) {
    left_out.clear();
    doors = open_listeners(config, registry, left_out);
  }
  if (refused != nullptr) refused->insert(refused->end(), left_out.begin(), left_out.end());
  if (!doors) return doors;
  if (doors->listeners.empty())
    return Error{Code::kUnsupported, "no transport can be offered"}.with_subject(
        "transports.rdma, transports.tcp, transports.shm");
  doors->desk = std::make_shared<ServerStatusDesk>(config.limits, std::move(left_out));
  if (!config.metrics.address) return doors;
  auto endpoint = metrics::HttpEndpoint::start(registry, http_options(config.metrics, doors->desk));
  if (!endpoint) return endpoint.error();
  doors->http = std::move(*endpoint);
  return doors;
}

Status ServerCore::create_configured_regions() {
  for (const config::RegionConfig& region : config_.regions) {
    RegionSpec spec{
        .name = region.name,
        .size_bytes = region.size_bytes,
        .block_bytes = region.block_bytes,
        .rights = rights_of(region.rights.read, region.rights.write, region.rights.atomic),
        .atomic_domain = region.atomics,
        .shm = region.shm,
        .access = access_of(region)};
    auto created = create_region(std::move(spec));
    if (!created) return created.error().with_subject("regions: " + region.name);
  }
  return {};
}

Status ServerCore::export_pool() {
  using Read = std::uint64_t (*)(const PoolUsage&);
  static constexpr std::pair<const char*, Read> kStates[] = {
      {"used", [](const PoolUsage& usage) { return usage.used_bytes; }},
      {"freeing", [](const PoolUsage& usage) { return usage.freeing_bytes; }},
      {"free", [](const PoolUsage& usage) { return usage.free_bytes(); }}};
  for (const auto& [state, read] : kStates) {
    auto handle = metrics_.registry()->gauge_callback(
        "remora_server_pool_bytes", "Bytes of the pool, by what they are.", {{"state", state}},
        [pool = pool_, part = read] { return static_cast<double>(part(pool->usage())); });
    if (!handle) return handle.error();
    pool_series_.push_back(std::move(*handle));
  }
  auto zombies = metrics_.registry()->gauge_callback(
      "remora_server_zombie_bytes", "Bytes of removed regions that other processes still hold.", {},
      [pool = pool_] { return static_cast<double>(pool->zombie_bytes()); });
  if (!zombies) return zombies.error();
  pool_series_.push_back(std::move(*zombies));
  for (const std::string& device : devices_) transport::show_nic(*metrics_.registry(), device);
  return {};
}

Status ServerCore::begin() {
  auto loop = EventLoop::start("remora-control");
  if (!loop) return loop.error();
  loop_ = std::move(*loop);
  worker_ = std::thread{[this] { work(); }};
  ::pthread_setname_np(worker_.native_handle(), "remora-worker");
  loop_->every(kLookPeriod, [this] {
    desk_->beat();
    end_late_arrivals();
    end_silent_sessions();
    forget_lapsed_sessions();
    bury_zombies();
    remove_expired();
    look_at_memory_line();  // for those whose time is over
  });
  pool_->on_cleaned([this] { look_at_memory_line(); });
  room_event_ = UniqueFd{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  if (!room_event_) return Error{Code::kSystem, "eventfd"}.with_errno(errno);
  if (auto watch = loop_->watch(room_event_.get(), [this] { on_room(); }); !watch)
    return watch.error();
  if (auto status = grants_.open(); !status) return status;
  const auto on_grace_over = [this] {
    grants_.take_timer();
    enqueue([this] { grants_.tick(); });
  };
  if (auto watch = loop_->watch(grants_.timer_fd(), on_grace_over); !watch) return watch.error();
  for (const auto& listener : listeners_) {
    auto watch =
        loop_->watch(listener->event_fd(), [this, raw = listener.get()] { on_listener(*raw); });
    if (!watch) return watch.error();
    listener_watches_.push_back(*watch);
  }
  desk_->open(*this);
  return {};
}

/// Any thread.
void ServerCore::look_at_memory_line() {
  if (!memory_line_.empty()) enqueue([this] { memory_line_.look(); });
}

/// Memory of removed regions that nobody has any more goes back to the system: on the worker.
void ServerCore::bury_zombies() {
  (void)pool_->zombie_bytes();
  auto dead = std::make_shared<std::vector<UniqueFd>>(pool_->take_dead_zombies());
  if (!dead->empty()) enqueue([dead] { dead->clear(); });
}

void ServerCore::stop() noexcept {
  {
    const std::lock_guard lock{mutex_};
    if (stopped_) return;
    stopped_ = true;
  }
  // Nobody new, then nobody at all; the worker gives everything back before it ends. Health and
  // metrics stay while sessions may still leave by themselves.
  desk_->drain();
  for (const EventLoop::Token watch : listener_watches_) loop_->forget(watch);
  if (config_.limits.drain_timeout > config_.limits.drain_timeout.zero()) {
    drains_until_.store((Clock::now() + config_.limits.drain_timeout).time_since_epoch().count());
    tell_all(*draining());
  }
  const Deadline drained = Clock::now() + config_.limits.drain_timeout;
  while (session_count() > 0 && !hurried_ && Clock::now() < drained)
    std::this_thread::sleep_for(kDrainPause);
  desk_->close();
  http_.reset();
  notifier_.stop();
  if (loop_ != nullptr) loop_->stop();
  // Nobody new; one that the worker resumes just now changes its name.
  for (std::vector<std::uint64_t> left{0}; !left.empty();) {
    left.clear();
    {
      const std::lock_guard lock{mutex_};
      for (const auto& [id, attached] : sessions_) left.push_back(id);
    }
    for (const std::uint64_t id : left) end_session(id, SessionEnd::kStopped);
  }
  {
    const std::lock_guard lock{mutex_};
    for (auto& [id, kept] : std::exchange(kept_, {}))
      jobs_.push_back([session = std::move(kept.session)] { session->release(); });
  }
  metrics_.sessions_kept(0);
  listeners_.clear();
  pool_->on_cleaned(nullptr);
  {
    const std::lock_guard lock{mutex_};
    stopping_ = true;
  }
  job_added_.notify_all();
  if (worker_.joinable()) worker_.join();
  pool_series_.clear();
}

std::optional<control::Event> ServerCore::draining() const {
  const Clock::rep until = drains_until_.load();
  if (until == 0) return std::nullopt;
  const auto left = Clock::time_point{Clock::duration{until}} - Clock::now();
  control::Event event;
  event.mutable_draining()->set_remaining_ms(static_cast<std::uint64_t>(
      std::max<std::int64_t>(std::chrono::ceil<std::chrono::milliseconds>(left).count(), 0)));
  return event;
}

void ServerCore::tell_all(const control::Event& event) {
  for (auto& session : sessions(std::numeric_limits<std::size_t>::max()))
    enqueue([session = std::move(session), event] {
      if (session->greeted()) session->tell(event);
    });
}

bool ServerCore::enqueue(std::function<void()> job) {
  {
    const std::lock_guard lock{mutex_};
    if (worker_ended_) return false;
    jobs_.push_back(std::move(job));
  }
  job_added_.notify_one();
  return true;
}

void ServerCore::work() noexcept {
  std::unique_lock lock{mutex_};
  while (true) {
    job_added_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
    if (jobs_.empty() && !memory_line_.empty()) {
      lock.unlock();
      memory_line_.clear();  // nobody would look any more
      lock.lock();
      continue;
    }
    if (jobs_.empty()) {
      worker_ended_ = true;  // until then all that is given back is given back here
      return;
    }
    {
      const std::function<void()> job = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      job_began_.store(Clock::now().time_since_epoch().count(), std::memory_order_relaxed);
      job();
      job_began_.store(0, std::memory_order_relaxed);
    }
    lock.lock();
  }
}

void ServerCore::on_listener(Listener& listener) noexcept {
  auto arrived = listener.accept();
  if (!arrived) {
    log::warn("{}: {}", listener.description(), arrived.error().message());
    // The descriptor stays readable while the cause lasts (no descriptors left): not at full speed.
    std::this_thread::sleep_for(kListenerPause);
    return;
  }
  for (auto& endpoint : *arrived) {
    const int fd = endpoint->event_fd();
    auto session =
        std::make_shared<ServerSession>(*this, random_id(), random_id(), std::move(endpoint));
    const std::uint64_t id = session->id();
    // Those that have said who they are, and those that have not, are bounded each for itself: the
    // latter cannot keep the others out.
    if (const auto oldest = half_open_.add(session, config_.limits.half_open_max))
      end_unheard(*oldest, ServerMetrics::Refusal::kHalfOpen);
    const std::lock_guard lock{mutex_};
    auto watch = loop_->watch(fd, [this, weak = std::weak_ptr{session}] {
      if (const auto alive = weak.lock()) on_session(alive->id());
    });
    if (!watch) {
      log::warn("session: {}", watch.error().message());
      metrics_.session_ended(SessionEnd::kRefused);
      continue;
    }
    sessions_.emplace(id, Attached{.session = std::move(session), .watch = *watch});
  }
}

void ServerCore::on_session(std::uint64_t id) noexcept {
  std::shared_ptr<ServerSession> session;
  {
    const std::lock_guard lock{mutex_};
    const auto found = sessions_.find(id);
    if (found == sessions_.end()) return;
    session = found->second.session;
  }
  std::size_t notice_budget = transport::kNoticesMax;
  while (true) {
    auto message = session->endpoint().receive();
    if (!message) {
      const bool wrong = message.error().code() == Code::kProtocol;
      if (wrong) metrics_.protocol_violation();
      log::debug("session {:x}: {}", id, message.error().message());
      if (!wrong) return hung_up(session);
      end_session(id, SessionEnd::kProtocol, session.get());
      return;
    }
    if (!message->has_value()) {
      if (!take_notices(*session, notice_budget)) return;
      continue;
    }
    session->hear();
    if (session->answer_ping((*message)->bytes)) continue;
    if (!session->admit_request()) {
      log::warn("session {:x} ({}): too many requests at once; ended", id,
                session->endpoint().peer());
      metrics_.protocol_violation();
      end_session(id, SessionEnd::kProtocol, session.get());
      return;
    }
    // Shared, since a std::function is copyable and a message is not.
    auto shared = std::make_shared<transport::ControlMessage>(std::move(**message));
    enqueue([this, session, shared, arrived = Clock::now()] {
      after_serving(*session, session->serve(*shared, arrived));
    });
  }
}

/// Its lanes end at once; whether its client may come back is known when all it has said is served:
/// the last word may be a goodbye.
void ServerCore::hung_up(const std::shared_ptr<ServerSession>& session) noexcept {
  EventLoop::Token watch = 0;
  {
    const std::lock_guard lock{mutex_};
    // Its client may have come back already: then another one has its name.
    const auto found = sessions_.find(session->id());
    if (found != sessions_.end() && found->second.session == session)
      watch = std::exchange(found->second.watch, 0);
  }
  if (watch != 0) loop_->drop(watch);
  session->endpoint().shutdown();
  session->announce_the_rest();
  enqueue([this, session] {
    const bool lost = session->greeted() && session->resumable();
    end_session(session->id(), lost ? SessionEnd::kLost : SessionEnd::kLeft, session.get());
  });
}

/// Worker.
void ServerCore::after_serving(const ServerSession& session,
                               ServerSession::Served served) noexcept {
  const auto end = [&](SessionEnd why) { end_session(session.id(), why, &session); };
  switch (served) {
    case ServerSession::Served::kAnswered: return;
    case ServerSession::Served::kRefused: return end(SessionEnd::kRefused);
    case ServerSession::Served::kUnheard:
      // Who has said goodbye need not hear the answer.
      return end(session.resumable() ? SessionEnd::kLost : SessionEnd::kLeft);
    case ServerSession::Served::kTooManyRequests:
      log::warn("session {:x} ({}): more than limits.requests_per_second ({}); ended", session.id(),
                session.endpoint().peer(), config_.limits.requests_per_second);
      return end(SessionEnd::kRequests);
    case ServerSession::Served::kNotTheProtocol:
      metrics_.protocol_violation();
      log::warn("session {:x} ({}): not the protocol; ended", session.id(),
                session.endpoint().peer());
      return end(SessionEnd::kProtocol);
  }
}

/// True when there may be more of anything. `budget`: how many more this visit may take, so that
/// one client does not keep the control thread.
bool ServerCore::take_notices(ServerSession& session, std::size_t& budget) noexcept {
  std::array<transport::Notice, 32> found;
  bool any = false;
  while (true) {
    if (budget == 0) {
      look_for_notices(session.id());
      return false;
    }
    const std::size_t room = session.reserve_notices(std::min(budget, found.size()));
    if (room == 0) {
      if (session.hold_up()) return false;  // look_for_notices() comes when there is room
      continue;
    }
    const std::size_t count = session.endpoint().take_notices(std::span{found}.first(room));
    session.give_back_room(room - count);
    if (count == 0) return any;
    any = true;
    budget -= count;
    for (std::size_t i = 0; i < count; ++i) {
      const Status announced = session.announce(found[i]);
      if (announced) continue;
      session.give_back_room(count - i - 1);
      log::warn("session {:x}: {}; ended", session.id(), announced.error().message());
      metrics_.protocol_violation();
      end_session(session.id(), SessionEnd::kProtocol, &session);
      return false;
    }
  }
}

void ServerCore::look_for_notices(std::uint64_t session_id) noexcept {
  const std::lock_guard lock{mutex_};
  if (stopping_) return;
  with_room_.push_back(session_id);
  signal_event(room_event_.get());
}

void ServerCore::on_room() noexcept {
  std::vector<std::uint64_t> ids;
  {
    const std::lock_guard lock{mutex_};
    eventfd_t value = 0;
    ::eventfd_read(room_event_.get(), &value);
    ids.swap(with_room_);
  }
  for (const std::uint64_t id : ids) on_session(id);
}

/// `only`: unless the name is another's by now. False: there is no such session.
bool ServerCore::end_session(std::uint64_t id, SessionEnd why, const ServerSession* only,
                             std::optional<ServerMetrics::Refusal> refused) noexcept {
  Attached ended;
  bool kept = false;
  {
    const std::lock_guard lock{mutex_};
    const auto found = sessions_.find(id);
    if (found == sessions_.end()) return false;
    if (only != nullptr && found->second.session.get() != only) return false;
    // It has said who it is meanwhile, and may have taken over what somebody has lost.
    if (why == SessionEnd::kNoHello && found->second.admitted) return false;
    ended = std::move(found->second);
    if (ended.admitted) --admitted_;
    sessions_.erase(found);
    kept = keep(ended.session, why);
  }
  metrics_.session_ended(why);
  if (refused) metrics_.session_refused(*refused);  // before its client can see it
  // The control thread may be at what this one's client has said.
  if (loop_ != nullptr && ended.watch != 0) loop_->forget(ended.watch);
  ended.session->say_why(why);
  ended.session->endpoint().shutdown();
  if (ended.session->greeted()) ended.session->announce_the_rest();
  if (kept) return true;
  // Deregistering takes time: on the worker, after what it still has to serve.
  enqueue([session = std::move(ended.session)] { session->release(); });
  return true;
}

/// With the lock. Whether a session that ends stays for its client to come back to.
bool ServerCore::keep(const std::shared_ptr<ServerSession>& session, SessionEnd why) {
  const auto time = config_.limits.session_keep;
  const bool may_come_back = (why == SessionEnd::kLost || why == SessionEnd::kLapsed) &&
                             session->greeted() && session->resumable();
  if (!may_come_back || stopped_ || time <= time.zero()) return false;
  // No more than there may be with clients: then the longest alone of the client that has most of
  // them gives way, so that nobody's coming and going costs others theirs.
  if (kept_.size() >= config_.limits.sessions_max) {
    std::unordered_map<std::string_view, std::size_t> counts;
    for (const auto& [id, each] : kept_) ++counts[each.session->client_name()];
    const auto weight = [&](const auto& entry) {
      return std::pair{counts[entry.second.session->client_name()],
                       -entry.second.until.time_since_epoch()};
    };
    drop_kept(std::max_element(kept_.begin(), kept_.end(), [&](const auto& a, const auto& b) {
      return weight(a) < weight(b);
    }));
  }
  session->be_alone();
  kept_.emplace(session->id(), Kept{session, Clock::now() + time});
  metrics_.sessions_kept(kept_.size());
  return true;
}

/// With the lock.
void ServerCore::drop_kept(std::unordered_map<std::uint64_t, Kept>::iterator dropped) {
  jobs_.push_back([gone = std::move(dropped->second.session)] { gone->release(); });
  job_added_.notify_one();
  kept_.erase(dropped);
}

Result<std::shared_ptr<ServerSession>> ServerCore::claim(const control::Resume& resume,
                                                         const ServerSession& by) {
  Attached found;
  bool too_often = false;
  {
    const std::lock_guard lock{mutex_};
    const auto kept = kept_.find(resume.session_id());
    const auto attached = sessions_.find(resume.session_id());
    const bool is_kept = kept != kept_.end() && kept->second.session->is_that_of(resume, by);
    const bool is_attached =
        !is_kept && attached != sessions_.end() && attached->second.session->is_that_of(resume, by);
    if (!is_kept && !is_attached) return std::shared_ptr<ServerSession>{};
    // First: one that is refused has taken nothing, and comes again.
    const std::size_t leaving = is_attached && attached->second.admitted ? 1 : 0;
    if (auto admitted = admit_locked(by, leaving); !admitted) return admitted.error();
    if (is_kept) {
      found.session = std::move(kept->second.session);
      kept_.erase(kept);
      metrics_.sessions_kept(kept_.size());
    } else {
      // Its client knows before we do that the lanes are gone.
      found = std::move(attached->second);
      if (found.admitted) --admitted_;
      sessions_.erase(attached);
      metrics_.session_ended(SessionEnd::kLost);
    }
    too_often = !found.session->may_resume(Clock::now());
  }
  // The control thread may be at what this one's client has said. It never waits for the worker.
  if (found.watch != 0) loop_->forget(found.watch);
  if (!too_often) return found.session;
  log::warn("session {:x} ({}): more than limits.resumes_per_minute ({}); ended",
            resume.session_id(), found.session->endpoint().peer(),
            config_.limits.resumes_per_minute);
  found.session->endpoint().shutdown();
  found.session->announce_the_rest();
  found.session->release();
  return Error{Code::kLimitExceeded, "resumptions of a session in a minute"}
      .with_subject("limits.resumes_per_minute")
      .with_limit(std::uint64_t{config_.limits.resumes_per_minute} + 1,
                  config_.limits.resumes_per_minute)
      .with_reason(Reason::kTooOften);
}

void ServerCore::rename(std::uint64_t id, std::uint64_t resumed) {
  metrics_.session_resumed();
  const std::lock_guard lock{mutex_};
  auto session = sessions_.extract(id);
  if (session.empty()) return;  // it has ended meanwhile
  session.key() = resumed;
  sessions_.insert(std::move(session));
}

/// A client that says nothing cannot be told from one that is gone, and what it has open is wanted.
void ServerCore::end_silent_sessions() noexcept {
  const Clock::time_point now = Clock::now();
  const bool paused = now - std::exchange(looked_at_, now) > kOwnPause;
  if (paused) lease_floor_ = now;
  std::vector<std::shared_ptr<ServerSession>> silent;
  {
    const std::lock_guard lock{mutex_};
    // Nor could anybody come back meanwhile.
    if (paused)
      for (auto& [id, kept] : kept_) kept.until = now + config_.limits.session_keep;
    for (const auto& [id, attached] : sessions_) {
      const ServerSession& session = *attached.session;
      const Clock::time_point heard = std::max(session.heard_at(), lease_floor_);
      // Whoever maps memory keeps it, however long he is silent: no lapse takes it back, and that
      // he is gone shows by itself.
      if (session.greeted() && session.keeps_alive() && !session.maps_grants() &&
          now - heard > config_.limits.session_lease)
        silent.push_back(attached.session);
    }
  }
  for (const auto& session : silent) {
    const std::uint64_t id = session->id();
    log::warn("session {:x}: nothing heard for {} ms (limits.session_lease); its lanes end", id,
              std::chrono::duration_cast<std::chrono::milliseconds>(config_.limits.session_lease)
                  .count());
    end_session(id, SessionEnd::kLapsed, session.get());
  }
}

void ServerCore::forget_lapsed_sessions() noexcept {
  std::vector<std::shared_ptr<ServerSession>> gone;
  {
    const std::lock_guard lock{mutex_};
    std::erase_if(kept_, [&](auto& entry) {
      if (entry.second.until > Clock::now()) return false;
      gone.push_back(std::move(entry.second.session));
      return true;
    });
    if (!gone.empty()) metrics_.sessions_kept(kept_.size());
  }
  for (auto& session : gone) {
    log::info("session {:x}: its client has not come back; what it had open is given up",
              session->id());
    enqueue([session = std::move(session)] { session->release(); });
  }
}

void ServerCore::end_late_arrivals() noexcept {
  std::vector<std::uint64_t> late;  // nobody's name changes before he has been heard
  const Clock::time_point now = Clock::now();
  {
    const std::lock_guard lock{mutex_};
    for (const auto& [id, attached] : sessions_)
      if (attached.session->late(now, config_.limits.handshake_timeout)) late.push_back(id);
  }
  for (const std::uint64_t id : late) end_unheard(id, ServerMetrics::Refusal::kNoHello);
}

/// Control thread.
void ServerCore::end_unheard(std::uint64_t id, ServerMetrics::Refusal why) noexcept {
  if (!end_session(id, SessionEnd::kNoHello, nullptr, why)) return;
  if (why == ServerMetrics::Refusal::kHalfOpen)
    log::debug("session {:x}: another one takes its place (limits.half_open_max); ended", id);
  else
    log::warn("session {:x}: no hello in time; ended", id);
}

bool ServerCore::offers(TransportKind kind) const noexcept {
  return std::find(offered_.begin(), offered_.end(), kind) != offered_.end();
}

std::vector<std::shared_ptr<ServerSession>> ServerCore::sessions(std::size_t most) const {
  const std::lock_guard lock{mutex_};
  std::vector<std::shared_ptr<ServerSession>> some;
  some.reserve(std::min(most, sessions_.size()));
  for (const auto& [id, attached] : sessions_) {
    if (some.size() == most) break;
    some.push_back(attached.session);
  }
  return some;
}

std::chrono::seconds ServerCore::job_age() const noexcept {
  const Clock::rep began = job_began_.load(std::memory_order_relaxed);
  if (began == 0) return {};
  return std::chrono::duration_cast<std::chrono::seconds>(
      Clock::now() - Clock::time_point{Clock::duration{began}});
}

std::size_t ServerCore::session_count() const {
  const std::lock_guard lock{mutex_};
  return sessions_.size();
}

Result<RegionInfo> ServerCore::create_region(RegionSpec spec, const std::string& device,
                                             std::string_view owner, Deadline deadline) {
  if (spec.atomic_domain == "auto") spec.atomic_domain = device.empty() ? "cpu" : device;
  const bool known =
      spec.atomic_domain == "none" || spec.atomic_domain == "cpu" ||
      std::find(devices_.begin(), devices_.end(), spec.atomic_domain) != devices_.end();
  if (!known)
    return Error{Code::kUnsupported, "atomic domain"}
        .with_subject(spec.atomic_domain)
        .with_reason(Reason::kUnknownDevice);
  if (spec.shm && !offers(TransportKind::kShm))
    return Error{Code::kUnsupported, "region over shm"}.with_subject(spec.name).with_reason(
        Reason::kNotOffered);
  if (!spec.shm && !offers(TransportKind::kRdma) && !offers(TransportKind::kTcp))
    log::warn("region {}: no transport of this server can open it; create it with shm", spec.name);
  auto created = catalog_.create(spec, deadline, owner);
  metrics_.regions(catalog_.size());
  return created;
}

Result<RegionInfo> ServerCore::create_region(RegionSpec spec) {
  const std::string device = spec.shm || devices_.empty() ? "" : devices_.front();
  return create_region(std::move(spec), device, {}, deadline_after(config_.limits.request_timeout));
}

std::string ServerCore::metrics_address() const { return metrics_address_; }

}  // namespace remora::detail
