#include "server/server_core.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <fmt/format.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <utility>

#include <remora/start_thread.h>

#include "base/log.h"

namespace remora::detail {

using transport::Listener;

namespace {
constexpr std::chrono::milliseconds kListenerPause{20};
constexpr std::chrono::milliseconds kLookPeriod{100};

std::vector<std::string> descriptions_of(const std::vector<std::unique_ptr<Listener>>& listeners) {
  std::vector<std::string> lines;
  lines.reserve(listeners.size());
  for (const auto& listener : listeners) lines.push_back(listener->description());
  return lines;
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

ServerCore::ServerCore(config::ServerConfig config, ServerMetrics metrics,
                       std::shared_ptr<Pool> pool, Listeners listeners)
    : config_{std::move(config)},
      metrics_{std::move(metrics)},
      pool_{std::move(pool)},
      catalog_{pool_, config_.limits.regions_max},
      notifier_{metrics_},
      grants_{config_.limits.revoke_grace},
      memory_line_{[this](std::uint64_t size_bytes) { return pool_->must_wait(size_bytes); }},
      boot_id_{random_id()},
      memory_id_{random_id()},
      port_{listeners.port},
      offered_{kinds_of(listeners.listeners)},
      listeners_{std::move(listeners.listeners)},
      listening_{descriptions_of(listeners_)},
      devices_{std::move(listeners.devices)},
      protection_{std::move(listeners.protection)},
      desk_{std::move(listeners.desk)},
      metrics_address_{listeners.http ? "http://" + listeners.http->address() : std::string{}},
      http_{std::move(listeners.http)},
      clients_{std::make_shared<ClientRegistry>(config_.clients)} {}

ServerCore::~ServerCore() {
  stop();
  notifier_.stop();  // once more, if it was a handler that stopped the server
}

Status ServerCore::begin() {
  auto loop = EventLoop::start("remora-control");
  if (!loop) return loop.error();
  loop_ = std::move(*loop);
  auto worker = start_thread("remora-worker", [this] { work(); });
  if (!worker) return worker.error();
  worker_ = std::move(*worker);
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
    grants_.timer().take();
    enqueue([this] { grants_.tick(); });
  };
  if (auto watch = loop_->watch(grants_.timer().get(), on_grace_over); !watch) return watch.error();
  if (auto status = delayed_.open(); !status) return status;
  const auto on_delay_over = [this] {
    delayed_.timer().take();
    enqueue([this] { delayed_.tick(); });
  };
  if (auto watch = loop_->watch(delayed_.timer().get(), on_delay_over); !watch)
    return watch.error();
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
  if (!memory_line_.empty()) enqueue([this] { memory_line_.run_ready(); });
}

/// Memory of removed regions that nobody has any more goes back to the system: on the worker.
void ServerCore::bury_zombies() {
  (void)pool_->orphaned_bytes();
  auto dead = std::make_shared<std::vector<UniqueFd>>(pool_->take_unheld_orphans());
  if (!dead->empty()) enqueue([dead] { dead->clear(); });
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
  // Those that have ended hold what they have of a device until the worker comes to them: who
  // connects and goes faster than that waits in the kernel.
  if (ending_sessions() > config_.limits.pending_handshakes_max)
    return std::this_thread::sleep_for(kListenerPause);
  auto arrived = listener.accept();
  if (!arrived) {
    if (listener_lines_.allows(Clock::now()))
      log::warn("{}: {}{}", listener.description(), arrived.error().message(),
                listener_lines_.take_left_out());
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
    if (const auto oldest = pending_handshakes_.add(session, config_.limits.pending_handshakes_max))
      end_unheard(*oldest, ServerMetrics::Refusal::kPendingHandshake);
    const std::lock_guard lock{mutex_};
    auto watch = loop_->watch(fd, [this, weak = std::weak_ptr{session}] {
      if (const auto alive = weak.lock()) on_session(alive->id());
    });
    if (!watch) {
      if (listener_lines_.allows(Clock::now()))
        log::warn("session: {}{}", watch.error().message(), listener_lines_.take_left_out());
      metrics_.session_ended(SessionEnd::kRefused);
      continue;
    }
    sessions_.emplace(id, Attached{.session = std::move(session), .watch = *watch});
  }
}

std::size_t ServerCore::ending_sessions() const {
  const std::lock_guard lock{mutex_};
  const std::size_t living = living_sessions_, in_use = sessions_.size() + kept_.size();
  return living - std::min(living, in_use);
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
      if (odd_lines_.allows(Clock::now()))
        log::warn("session {:x} ({}): too many requests at once; ended{}", id,
                  session->endpoint().peer(), odd_lines_.take_left_out());
      metrics_.protocol_violation();
      end_session(id, SessionEnd::kProtocol, session.get());
      return;
    }
    // Shared, since a std::function is copyable and a message is not.
    auto shared = std::make_shared<transport::ControlMessage>(std::move(**message));
    enqueue([this, session, shared, arrived = Clock::now()] {
      after_serving(*session, session->serve(shared, arrived));
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
    session->serve_all_delayed();
    const bool lost = session->handshake_complete() && session->resumable();
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
    case ServerSession::Served::kNotTheProtocol:
      metrics_.protocol_violation();
      if (protocol_lines_.allows(Clock::now()))
        log::warn("session {:x} ({}): not the protocol; ended{}", session.id(),
                  session.endpoint().peer(), protocol_lines_.take_left_out());
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
      if (odd_lines_.allows(Clock::now()))
        log::warn("session {:x}: {}; ended{}", session.id(), announced.error().message(),
                  odd_lines_.take_left_out());
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

std::vector<std::pair<std::string, std::shared_ptr<ServerSession>>> ServerCore::sessions_behind(
    std::string_view after, std::size_t most) const {
  // As text, any parameter of a request can be compared with it.
  const auto place = [](std::uint64_t id) { return fmt::format("{:016x}", id); };
  std::vector<std::pair<std::string, std::shared_ptr<ServerSession>>> found;
  {
    const std::lock_guard lock{mutex_};
    found.reserve(sessions_.size());
    for (const auto& [id, attached] : sessions_)
      if (std::string at = place(id); at > after)
        found.emplace_back(std::move(at), attached.session);
  }
  const auto end = found.begin() + static_cast<std::ptrdiff_t>(std::min(most, found.size()));
  std::partial_sort(found.begin(), end, found.end());
  found.erase(end, found.end());
  return found;
}

std::chrono::seconds ServerCore::job_age() const noexcept {
  const Clock::rep began = job_began_.load(std::memory_order_relaxed);
  if (began == 0) return {};
  return std::chrono::duration_cast<std::chrono::seconds>(
      Clock::now() - Clock::time_point{Clock::duration{began}});
}

std::size_t ServerCore::jobs_waiting() const {
  const std::lock_guard lock{mutex_};
  return jobs_.size();
}

std::size_t ServerCore::session_count() const {
  const std::lock_guard lock{mutex_};
  return sessions_.size();
}

Result<RegionInfo> ServerCore::create_region(RegionSpec spec, const std::string& device,
                                             std::string_view owner, Deadline deadline) {
  if (!spec.shm && !offers(TransportKind::kRdma) && !offers(TransportKind::kTcp))
    log::warn("region {}: no transport of this server can open it; create it with shm", spec.name);
  return create_region(std::move(spec), device, owner, deadline, {.stop = populating_.get_token()});
}

Result<RegionInfo> ServerCore::create_region(RegionSpec spec, const std::string& device,
                                             std::string_view owner, Deadline deadline,
                                             const PopulateSteps& steps) {
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
  auto created = catalog_.create(spec, deadline, owner, steps);
  metrics_.regions(catalog_.size());
  return created;
}

std::string ServerCore::first_device_for(const RegionSpec& spec) const {
  return spec.shm || devices_.empty() ? "" : devices_.front();
}

Result<RegionInfo> ServerCore::create_region(RegionSpec spec) {
  const std::string device = first_device_for(spec);
  return create_region(std::move(spec), device, {}, deadline_after(config_.limits.request_timeout));
}

std::string ServerCore::metrics_address() const { return metrics_address_; }

}  // namespace remora::detail
