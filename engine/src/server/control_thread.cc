#include "server/control_thread.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <span>
#include <thread>
#include <utility>

#include "base/log.h"
#include "base/random_id.h"
#include "server/server_core.h"
#include "server/server_session.h"
#include "transport/device_failure.h"
#include "transport/device_session.h"
#include "transport/device_watch.h"

namespace remora::detail {

using transport::Listener;

namespace {
constexpr std::chrono::milliseconds kListenerPause{20};
constexpr std::chrono::milliseconds kPeriod{100};
/// If the control thread has not run for this long, the server's process was itself stopped. It
/// then serves the messages that have queued up before it counts the silence of a client.
constexpr std::chrono::seconds kServerPause{1};
}  // namespace

Status ControlThread::start() {
  auto loop = EventLoop::start("remora-control");
  if (!loop) return loop.error();
  loop_ = std::move(*loop);
  loop_->every(kPeriod, [this] { on_period(); });
  if (auto status = sessions_to_read_.open(); !status) return status;
  const auto on_room = [this] {
    for (const std::uint64_t id : sessions_to_read_.take()) receive(id);
  };
  if (auto watch = loop_->watch(sessions_to_read_.event_fd(), on_room); !watch)
    return watch.error();
  RevocationCoordinator& revocations = server_.revocations();
  if (auto status = revocations.open(); !status) return status;
  if (auto status = watch_timer(revocations.timer(), [&revocations] { revocations.tick(); });
      !status)
    return status;
  DelayedSessions& delayed = server_.delayed_sessions();
  if (auto status = delayed.open(); !status) return status;
  if (auto status = watch_timer(delayed.timer(), [&delayed] { delayed.tick(); }); !status)
    return status;
  for (const auto& listener : server_.listeners().listeners()) {
    // Last: clients that are connected do not wait for those that connect.
    auto watch = loop_->watch(
        listener->event_fd(), [this, raw = listener.get()] { accept(*raw); },
        EventLoop::Turn::kLast);
    if (!watch) return watch.error();
    listener_watches_.push_back(*watch);
  }
  return {};
}

/// Watches a timer: when it has expired, the worker calls `tick`.
Status ControlThread::watch_timer(const TimerFd& timer, std::function<void()> tick) {
  auto watch = loop_->watch(timer.get(), [this, &timer, tick = std::move(tick)] {
    timer.take();
    server_.enqueue(tick);
  });
  return watch ? Status{} : Status{watch.error()};
}

void ControlThread::stop_accepting() noexcept {
  for (const EventLoop::Token watch : listener_watches_) loop_->forget(watch);
}

void ControlThread::stop() noexcept {
  if (loop_ != nullptr) loop_->stop();
}

void ControlThread::on_period() noexcept {
  server_.status_report().beat();
  look_at_devices();
  const auto patience = server_.limits().handshake_timeout;
  for (const auto& listener : server_.listeners().listeners())
    listener->set_handshake_timeout(patience);
  end_late_sessions();
  end_silent_sessions();
  release_lapsed_sessions();
  server_.regions().remove_outdated();
}

/// Ends the sessions of a device that has gone as sessions that have lost their connection: their
/// clients may resume them. Sessions that were lost before release their objects on the device,
/// too.
void ControlThread::look_at_devices() noexcept {
  const auto hit = [](const ServerSession& session, const transport::DeviceFailure& failure) {
    transport::DeviceSession* const device = session.endpoint().device_session();
    return device != nullptr && device->hit_by(failure);
  };
  for (const auto& listener : server_.listeners().listeners()) {
    transport::DeviceWatch* const devices = listener->device_watch();
    if (devices == nullptr) continue;
    if (auto job = devices->tick(server_.registration_threads().stop_token()))
      restore_devices(std::move(job));
    for (const transport::DeviceFailure& failure : devices->take_failures()) {
      for (const auto& session : server_.session_table().all())
        if (hit(*session, failure)) server_.ender().hung_up(session);
      for (auto& kept : server_.session_table().kept())
        if (hit(*kept, failure))
          server_.enqueue_connecting(
              [session = std::move(kept)] { session->settle_if_detached(); });
    }
  }
}

/// If grants are windows, `job` registers the pool with a device that has returned. It begins after
/// the jobs by which sessions release their objects on it.
void ControlThread::restore_devices(std::function<void()> job) noexcept {
  server_.enqueue_connecting([&server = server_, job = std::move(job)] {
    if (!server.registration_threads().enqueue(job)) job();
  });
}

void ControlThread::accept(Listener& listener) noexcept {
  // Sessions that have ended hold resources of a device until the worker releases them. If clients
  // connect and leave faster than that, new connections wait in the kernel. They also wait there
  // while as many clients as may be in their handshake wait for an answer of the server.
  const std::size_t max = server_.limits().pending_handshakes_max;
  if (server_.session_table().ending_count() > max || handshake_limit_.all_wait_for_server(max)) {
    if (!listener.accept_lane()) std::this_thread::sleep_for(kListenerPause);
    return;
  }
  auto arrived = listener.accept();
  if (listener.more_to_accept()) more_came_at_ = Clock::now();
  if (!arrived) {
    if (listener_lines_.allows(Clock::now()))
      log::warn({"listener.failed", "listener reason"}, "{}: {}{}", listener.description(),
                arrived.error().message(), listener_lines_.take_left_out());
    // The listener's descriptor stays readable while the cause lasts (no free descriptors), so this
    // thread pauses instead of trying at full speed.
    std::this_thread::sleep_for(kListenerPause);
    return;
  }
  for (auto& endpoint : *arrived) add(std::move(endpoint));
}

void ControlThread::add(std::unique_ptr<transport::ServerEndpoint> endpoint) noexcept {
  const int fd = endpoint->event_fd();
  auto session =
      std::make_shared<ServerSession>(server_, random_id(), random_id(), std::move(endpoint));
  // Sessions before and after the handshake have limits of their own: connections that send no
  // hello cannot take the place of clients.
  const std::size_t max = server_.limits().pending_handshakes_max;
  if (const auto oldest = handshake_limit_.add(session, max))
    end_unfinished_handshake(*oldest, true);
  // The watch's handler runs on this thread, so it cannot run before the session is in the table.
  auto watch = loop_->watch(fd, [this, weak = std::weak_ptr{session}] {
    if (const auto alive = weak.lock()) receive(alive->id());
  });
  if (!watch) {
    if (listener_lines_.allows(Clock::now()))
      log::warn({"session.not_watched", "reason"}, "session: {}{}", watch.error().message(),
                listener_lines_.take_left_out());
    server_.metrics().session_ended(SessionEnd::kRefused);
    return;
  }
  server_.session_table().attach(std::move(session), *watch);
}

void ControlThread::receive(std::uint64_t id) noexcept {
  const auto session = server_.session_table().find(id);
  if (session == nullptr) return;
  std::size_t notice_budget = transport::kMaxNotices;
  while (true) {
    auto message = session->endpoint().receive();
    if (!message) {
      if (message.error().code() != Code::kProtocol) {
        log::debug("session {:x}: {}", id, message.error().message());
        return server_.ender().hung_up(session);
      }
      return end_for_protocol(*session, message.error());
    }
    const bool more = message->has_value() ? take_message(session, std::move(**message))
                                           : take_notices(*session, notice_budget);
    if (!more) return;
  }
}

/// False: the session has ended.
bool ControlThread::take_message(const std::shared_ptr<ServerSession>& session,
                                 transport::ControlMessage message) noexcept {
  SessionConnection& connection = session->connection();
  connection.record_activity();
  if (session->handshake_complete() && connection.answer_ping(message.bytes)) return true;
  if (!connection.admit_request()) {
    if (protocol_lines_.allows(Clock::now()))
      log::warn({"session.flooded", "session:x peer"},
                "session {:x} ({}): too many requests at once; ended{}", session->id(),
                session->endpoint().peer(), protocol_lines_.take_left_out());
    server_.metrics().protocol_violation();
    server_.ender().end(session->id(), SessionEnd::kProtocol, session.get());
    return false;
  }
  // Shared, since a std::function must be copyable and a message is not.
  auto shared = std::make_shared<transport::ControlMessage>(std::move(message));
  auto job = [this, session, shared, arrived = Clock::now()] {
    server_.ender().apply_outcome(*session, session->serve(shared, arrived));
  };
  if (session->handshake_complete())
    server_.enqueue(std::move(job));
  else
    server_.enqueue_connecting(std::move(job));
  return true;
}

/// Takes one message or some notices of the session. True: there may be more. `budget`: how many
/// notices this thread may still take in this round, so that one client does not occupy it.
bool ControlThread::take_notices(ServerSession& session, std::size_t& budget) noexcept {
  std::array<transport::Notice, 32> found;
  bool any = false;
  while (true) {
    if (budget == 0) {
      read_notices_again(session.id());
      return false;
    }
    const std::size_t room = session.notices().reserve(std::min(budget, found.size()));
    if (room == 0) {
      if (session.notices().stop_reading()) return false;  // until read_notices_again()
      continue;
    }
    const std::size_t count = session.endpoint().take_notices(std::span{found}.first(room));
    session.notices().give_back_room(room - count);
    if (count == 0) return any;
    any = true;
    budget -= count;
    if (!deliver(session, std::span{found}.first(count))) return false;
  }
}

/// False: a notice was not allowed, and the session has ended.
bool ControlThread::deliver(ServerSession& session,
                            std::span<const transport::Notice> notices) noexcept {
  for (std::size_t i = 0; i < notices.size(); ++i) {
    const Status delivered = session.notices().deliver(notices[i]);
    if (delivered) continue;
    session.notices().give_back_room(notices.size() - i - 1);
    end_for_protocol(session, delivered.error());
    return false;
  }
  return true;
}

/// Its client, which need not be admitted, has sent what the protocol does not allow.
void ControlThread::end_for_protocol(ServerSession& session, const Error& why) noexcept {
  if (protocol_lines_.allows(Clock::now()))
    log::warn({"session.protocol", "session:x peer reason"}, "session {:x} ({}): {}; ended{}",
              session.id(), session.endpoint().peer(), why.message(),
              protocol_lines_.take_left_out());
  server_.metrics().protocol_violation();
  server_.ender().end(session.id(), SessionEnd::kProtocol, &session);
}

/// Ends the sessions of silent clients: the server cannot know whether such a client still lives,
/// and other clients may need the memory of its grants.
void ControlThread::end_silent_sessions() noexcept {
  const Clock::time_point now = Clock::now();
  const bool paused = now - std::exchange(silence_checked_at_, now) > kServerPause;
  if (paused) {
    lease_floor_ = now;
    server_.session_table().renew_kept(now);  // their clients could not resume during the pause
    server_.renew_restored(now);
  }
  const auto lease =
      std::chrono::duration_cast<std::chrono::milliseconds>(server_.limits().session_lease);
  for (const auto& session : server_.session_table().silent(now, lease_floor_)) {
    const std::uint64_t id = session->id();
    if (silent_lines_.allows(Clock::now()))
      log::warn({"session.silent", "session:x silent_ms"},
                "session {:x}: nothing heard for {} ms (limits.session_lease); its lanes end{}", id,
                lease.count(), silent_lines_.take_left_out());
    server_.ender().end(id, SessionEnd::kLapsed, session.get());
  }
}

/// Whether clients wait for the server while they connect.
bool ControlThread::behind(Clock::time_point now) noexcept {
  constexpr std::chrono::seconds kStillComing{1};
  return now - more_came_at_ < kStillComing || handshake_limit_.any_waits_for_server();
}

void ControlThread::release_lapsed_sessions() noexcept {
  const Clock::time_point now = Clock::now();
  const bool behind = this->behind(now);
  for (auto& session : server_.session_table().take_lapsed(now, behind)) {
    log::info({"session.given_up", "session:x"},
              "session {:x}: its client has not come back; what it had open is given up",
              session->id());
    server_.ender().release_later(std::move(session));
  }
  server_.end_lapsed_restored(now, behind);
}

void ControlThread::end_late_sessions() noexcept {
  for (const std::uint64_t id : server_.session_table().late(Clock::now()))
    end_unfinished_handshake(id, false);
}

/// Ends a session whose client has not finished its handshake. `displaced`: a newer connection
/// takes its place.
void ControlThread::end_unfinished_handshake(std::uint64_t id, bool displaced) noexcept {
  const Refusal why = displaced ? Refusal::kPendingHandshake : Refusal::kNoHello;
  if (!server_.ender().end(id, SessionEnd::kNoHello, nullptr, why)) return;
  if (displaced)
    return log::debug(
        "session {:x}: another one takes its place (limits.pending_handshakes_max); ended", id);
  if (!handshake_lines_.allows(Clock::now())) return;
  log::warn({"session.no_hello", "session:x"}, "session {:x}: no hello in time; ended{}", id,
            handshake_lines_.take_left_out());
}

}  // namespace remora::detail
