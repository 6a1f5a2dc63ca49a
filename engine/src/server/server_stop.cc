/// How a server stops: its clients are told, have limits.drain_timeout to leave, and are told again
/// where they have not.

#include <algorithm>
#include <future>
#include <limits>
#include <utility>

#include "base/log.h"
#include "server/server_core.h"

namespace remora::detail {

namespace {
constexpr std::chrono::milliseconds kDrainPause{10};
/// For a worker that is busy when its server is to stop: what it has to tell clients waits for it.
constexpr std::chrono::milliseconds kTellTime{200};
}  // namespace

void ServerCore::stop() noexcept {
  {
    const std::lock_guard lock{mutex_};
    if (stopped_) return;
    stopped_ = true;
  }
  // No new sessions, then none at all; the worker gives everything back before it ends. Health and
  // metrics stay while sessions may still leave by themselves.
  desk_->drain();
  for (const EventLoop::Token watch : listener_watches_) loop_->forget(watch);
  await_clients();
  populating_.request_stop();
  desk_->close();
  http_.reset();
  notifier_.stop();
  if (loop_ != nullptr) loop_->stop();
  // No new sessions; one that the worker resumes just now changes its name.
  while (end_all_sessions()) {
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

/// Tells each client that the server stops, and waits for them to leave. Connections that have not
/// been let in are not waited for.
void ServerCore::await_clients() noexcept {
  const Deadline until = deadline_after(config_.limits.drain_timeout);
  // Also for those that are let in just now.
  drains_until_.store(until.time_since_epoch().count());
  if (admitted_count() == 0) return;
  tell_all(*draining());
  const auto told = std::make_shared<std::promise<void>>();
  if (enqueue([told] { told->set_value(); })) (void)told->get_future().wait_for(kTellTime);
  while (admitted_count() > 0 && !expedited_ && Clock::now() < until)
    std::this_thread::sleep_for(kDrainPause);
  if (const std::size_t left = admitted_count(); left > 0)
    log::info("stopping: {} sessions have not left{}; they end", left,
              expedited_ ? "" : " within limits.drain_timeout");
}

/// True when there may be more.
bool ServerCore::end_all_sessions() noexcept {
  std::vector<Ending> left;
  {
    const std::lock_guard lock{mutex_};
    left.reserve(sessions_.size());
    while (!sessions_.empty()) left.push_back(detach(sessions_.begin()));
  }
  for (std::size_t i = 0; i < left.size(); ++i) metrics_.session_ended(SessionEnd::kStopped);
  finish(left, SessionEnd::kStopped);
  return !left.empty();
}

std::size_t ServerCore::admitted_count() const {
  const std::lock_guard lock{mutex_};
  return admitted_;
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
      if (session->handshake_complete()) session->tell(event);
    });
}

}  // namespace remora::detail
