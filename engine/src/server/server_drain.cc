#include "server/server_drain.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <limits>
#include <memory>
#include <thread>
#include <utility>

#include "base/log.h"
#include "server/server_core.h"

namespace remora::detail {

namespace {
constexpr std::chrono::milliseconds kDrainPause{10};
/// The time for the worker to send the events: it may be busy when the server is asked to stop.
constexpr std::chrono::milliseconds kTellTime{200};
}  // namespace

void ServerDrain::await_clients() noexcept {
  const Deadline until = deadline_after(server_.limits().drain_timeout);
  // Set first, so that sessions which are admitted from now on get the event, too.
  until_.store(until.time_since_epoch().count());
  SessionTable& sessions = server_.session_table();
  if (sessions.admitted_count() == 0) return;
  tell_all(*event());
  const auto told = std::make_shared<std::promise<void>>();
  if (server_.enqueue([told] { told->set_value(); })) (void)told->get_future().wait_for(kTellTime);
  while (sessions.admitted_count() > 0 && !expedited_ && Clock::now() < until)
    std::this_thread::sleep_for(kDrainPause);
  if (const std::size_t left = sessions.admitted_count(); left > 0)
    log::info({"server.sessions_left", "sessions"},
              "stopping: {} sessions have not left{}; they end", left,
              expedited_ ? "" : " within limits.drain_timeout");
}

void ServerDrain::begin() {
  if (requested()) return;
  const Deadline until = deadline_after(server_.limits().drain_timeout);
  // Set first, as for a stop.
  requested_until_.store(until.time_since_epoch().count());
  server_.status_report().set_drained(true);
  tell_all(*event());
}

void ServerDrain::end() noexcept {
  requested_until_.store(0);
  server_.status_report().set_drained(false);
}

std::optional<control::Event> ServerDrain::event() const {
  Clock::rep until = until_.load();
  if (until == 0) until = requested_until_.load();
  if (until == 0) return std::nullopt;
  const auto left = Clock::time_point{Clock::duration{until}} - Clock::now();
  control::Event event;
  control::Event::Draining& draining = *event.mutable_draining();
  draining.set_remaining_ms(static_cast<std::uint64_t>(
      std::max<std::int64_t>(std::chrono::ceil<std::chrono::milliseconds>(left).count(), 0)));
  draining.set_number(static_cast<std::uint64_t>(until));
  return event;
}

void ServerDrain::tell_all(const control::Event& event) {
  for (auto& session : server_.sessions(std::numeric_limits<std::size_t>::max()))
    server_.enqueue([session = std::move(session), event] {
      if (session->handshake_complete()) session->send_event(event);
    });
}

}  // namespace remora::detail
