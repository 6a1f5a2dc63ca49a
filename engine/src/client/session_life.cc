/// The fate of a client's session: interrupted, resumed, ended; keep-alive while it is up.
///
/// When a lane breaks, or the server is gone or silent, the session is interrupted: its lanes are
/// broken off and a thread of its own connects again. The server destroys the old lanes before it
/// answers, and the session goes on with the grants it had. Where the server has new memory, or has
/// given the session up, it ends.

#include <algorithm>
#include <array>
#include <cmath>
#include <pthread.h>
#include <random>
#include <system_error>
#include <utility>

#include "client/engine_core.h"
#include "support/log.h"

namespace remora::detail {

using transport::Lane;

namespace {

/// Bounds how long closing a session waits for an attempt.
constexpr std::chrono::milliseconds kAttemptTime{2000};
constexpr std::chrono::milliseconds kPauseFirst{20};
constexpr std::chrono::milliseconds kPauseMost{2000};
constexpr std::chrono::milliseconds kGoodbyeTime{300};
/// Without a tick for so long this process was itself stopped: nobody is blamed for the silence.
constexpr std::chrono::seconds kOwnPause{2};

/// Pauses that grow, and differ between clients: a server that comes back is not met by all at
/// once.
class Backoff {
 public:
  std::chrono::nanoseconds next() {
    std::uniform_real_distribution<double> share{0.5, 1.0};
    const auto pause =
        std::chrono::duration_cast<std::chrono::nanoseconds>(pause_ * share(random_));
    pause_ = std::min<std::chrono::milliseconds>(2 * pause_, kPauseMost);
    return pause;
  }

 private:
  std::minstd_rand random_{std::random_device{}()};
  std::chrono::milliseconds pause_ = kPauseFirst;
};

}  // namespace

void SessionCore::fail(Reason reason) noexcept {
  if (!connected()) return;  // it has ended before, and its lanes may be going
  // What is mapped breaks with its server only.
  const bool lane = reason == Reason::kLaneBroken && kind() != TransportKind::kShm;
  End by = lane ? ClientMetrics::kLaneBroken : ClientMetrics::kPeerGone;
  const LaneFault fault = lane ? lane_fault() : LaneFault::kNone;
  if (fault == LaneFault::kDeadline) by = ClientMetrics::kDeadline;
  if (fault == LaneFault::kRefused) by = ClientMetrics::kRefused;
  lose(reason, by, fault);
}

/// What broke the first of the lanes, if an operation did.
LaneFault SessionCore::lane_fault() noexcept {
  const std::lock_guard lock{mutex_};
  for (const auto& lane : lanes_)
    if (const LaneFault fault = lane->fault(); fault != LaneFault::kNone) return fault;
  return LaneFault::kNone;
}

void SessionCore::lose(Reason reason, End by, LaneFault fault) noexcept {
  const std::lock_guard turn{turning_};
  const State state = state_.load();
  if (state == State::kEnded || state == State::kDown) return;
  // The new connection has gone before it was one: the next attempt.
  if (state == State::kJoining) return leave_connection(State::kDown, reason);
  if (resumable_ && counted_)
    interrupt(reason, by, fault);
  else
    end(reason, by, fault);
}

/// The connection there is is left: who waits for an answer hears of it.
void SessionCore::leave_connection(State next, Reason reason) noexcept {
  std::shared_ptr<transport::ClientEndpoint> endpoint;
  {
    const std::lock_guard lock{mutex_};
    lost_reason_.store(reason);
    state_.store(next, std::memory_order_release);
    ++connection_;
    for (auto& [id, waiter] : waiters_)
      if (waiter != nullptr) waiter->ready.notify_all();
    std::erase_if(waiters_, [](const auto& entry) { return entry.second == nullptr; });
    room_.notify_all();
    fate_.notify_all();
    endpoint = endpoint_;
  }
  // What the server has said before is still read: it may say why grants went.
  if (next != State::kEnded) endpoint->shutdown();
}

/// With turning_.
void SessionCore::interrupt(Reason reason, End by, LaneFault fault) noexcept {
  log::info("session with {} over {}: interrupted: {}; connecting again", dial_.server,
            to_string(kind()), to_string(reason));
  metrics_->session_interrupted(by);
  leave_connection(State::kDown, reason);
  // What one has done is uncertain while another goes on: they end together, and flush together.
  for (const auto& lane : lanes_) lane->blame(fault);
  for (const auto& lane : lanes_) lane->break_off();
  for (const auto& lane : lanes_) lane->interrupt(reason);
  {
    const std::lock_guard lock{mutex_};
    if (std::exchange(reconnector_at_work_, true)) return;
  }
  if (reconnector_.joinable()) reconnector_.join();  // it has ended its work
  try {
    reconnector_ = std::thread{[this] { reconnect(); }};
    ::pthread_setname_np(reconnector_.native_handle(), "remora-connect");
  } catch (const std::system_error& error) {
    log::warn("session with {}: no thread to connect again: {}", dial_.server, error.what());
    end(reason, by, fault);
  }
}

void SessionCore::end(Reason reason, End by, LaneFault fault) noexcept {
  const std::lock_guard turn{turning_};
  if (ended()) return;
  std::array<LaneDriver*, kLanesMax> lanes{};
  {
    const std::lock_guard lock{mutex_};
    ended_by_ = by;
    if (counted_) metrics_->session_ended(by);
    std::transform(lanes_.begin(), lanes_.end(), lanes.begin(),
                   [](const auto& lane) { return lane.get(); });
  }
  leave_connection(State::kEnded, reason);
  for (LaneDriver* const lane : lanes)
    if (lane != nullptr) lane->blame(fault);
  for (LaneDriver* const lane : lanes)
    if (lane != nullptr) lane->break_off();
  for (LaneDriver* const lane : lanes)
    if (lane != nullptr) lane->fail(reason);
  endpoint()->shutdown();
  if (!counted_) return;
  const SessionHandlers& handlers = engine_->options().handlers;
  tell(reason == Reason::kNewMemory ? handlers.on_stale : handlers.on_lost);
}

void SessionCore::tell(const SessionHandlers::Handler& handler) const noexcept {
  if (!handler) return;
  try {
    handler({.server = dial_.server, .transport = kind_, .reason = lost_reason_.load()});
  } catch (const std::exception& error) {
    log::warn("session with {}: a handler threw: {}", dial_.server, error.what());
  } catch (...) {
    log::warn("session with {}: a handler threw", dial_.server);
  }
}

/// The reconnector's thread: until the session is up, or has ended.
void SessionCore::reconnect() noexcept {
  (void)engine_->placement().bind_thread();
  {
    const std::lock_guard lock{mutex_};
    reconnecting_ = std::this_thread::get_id();
  }
  tell(engine_->options().handlers.on_interrupted);
  const Deadline until = deadline_after(engine_->options().reconnect_for);
  Backoff backoff;
  while (true) {
    if (Clock::now() >= until) {
      log::warn("session with {}: not reached again in time: {}", dial_.server,
                to_string(lost_reason()));
      end(lost_reason(), ClientMetrics::kPeerGone);
    } else if (sleep_unless_ended(
                   std::min<Clock::duration>(backoff.next(), until - Clock::now()))) {
      if (!join_again(kAttemptTime)) continue;
      tell(engine_->options().handlers.on_resumed);
    }
    const std::lock_guard lock{mutex_};
    const State state = state_.load();
    if (state != State::kUp && state != State::kEnded) continue;  // interrupted once more
    reconnector_at_work_ = false;
    reconnecting_ = {};
    return;
  }
}

/// False: the session has ended.
bool SessionCore::sleep_unless_ended(std::chrono::nanoseconds pause) noexcept {
  std::unique_lock lock{mutex_};
  return !fate_.wait_for(lock, pause, [this] { return ended(); });
}

/// True when the session is up again. False: not yet, or never.
bool SessionCore::join_again(std::chrono::nanoseconds time) noexcept {
  const Deadline deadline = Clock::now() + time;
  auto endpoint = dial_.connect(deadline);
  if (!endpoint) {
    log::debug("session with {}: {}", dial_.server, endpoint.error().message());
    return false;
  }
  const std::shared_ptr<transport::ClientEndpoint> joined = std::move(*endpoint);
  if (joined->device() != device_) return false;  // the route has moved: keys are of no use there
  {
    const std::lock_guard turn{turning_};
    const std::lock_guard lock{mutex_};
    if (ended()) return false;
    endpoint_ = joined;
    heard_all_.store(false);
    state_.store(State::kJoining);
  }
  Status status = watch(joined);
  if (status) status = resume(deadline);
  if (status) return true;
  log::debug("session with {}: {}", dial_.server, status.error().message());
  // What is final has ended the session by now.
  lose(status.error().reason() != Reason::kNone ? status.error().reason() : Reason::kPeerGone,
       ClientMetrics::kPeerGone);
  return false;
}

Status SessionCore::resume(Deadline deadline) {
  if (auto status = hello(deadline); !status) {
    // A server that does not want this client any more will not want it later.
    const Reason reason = status.error().reason();
    if (reason == Reason::kVersion || reason == Reason::kAuthentication ||
        reason == Reason::kNewMemory || reason == Reason::kLapsed)
      end(reason, ClientMetrics::kPeerGone);
    return status;
  }
  auto lanes = lanes_again(deadline);
  if (!lanes) return lanes.error();
  go_on(std::move(*lanes));
  return {};
}

/// What the server says to one who comes back. Errors: kStaleRegion; kConnectionLost with kLapsed.
Status SessionCore::take_up(const transport::LaneTicket& ticket, std::uint64_t memory_id) {
  if (memory_id != server_.memory_id)
    return Error{Code::kStaleRegion, "hello"}.with_reason(Reason::kNewMemory);
  if (!resumed_ || ticket.session_id != ticket_.session_id)
    return Error{Code::kConnectionLost, "hello"}.with_reason(Reason::kLapsed);
  ticket_ = ticket;
  return {};
}

/// None where memory is mapped.
Result<std::vector<std::unique_ptr<Lane>>> SessionCore::lanes_again(Deadline deadline) {
  std::vector<std::unique_ptr<Lane>> lanes;
  const auto endpoint = this->endpoint();
  if (endpoint->direct_path()) return lanes;
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    auto lane = endpoint->open_lane(ticket_, engine_->options().lane_depth, deadline);
    if (!lane) return lane.error();
    lanes.push_back(std::move(*lane));
  }
  return lanes;
}

void SessionCore::go_on(std::vector<std::unique_ptr<Lane>> lanes) noexcept {
  {
    const std::lock_guard turn{turning_};
    if (state_.load() != State::kJoining) return;
    bool fit = true;
    for (std::size_t i = 0; i < lanes_.size(); ++i)
      fit = lanes_[i]->replace(i < lanes.size() ? std::move(lanes[i]) : nullptr) && fit;
    if (!fit) {
      log::warn("session with {}: the new lanes can do less than the old ones; it ends",
                dial_.server);
      return end(Reason::kLaneBroken, ClientMetrics::kLaneBroken);
    }
    {
      const std::lock_guard lock{mutex_};
      state_.store(State::kUp, std::memory_order_release);
    }
    metrics_->session_resumed();
    log::info("session with {} over {}: resumed", dial_.server, to_string(kind()));
    for (const auto& lane : lanes_)
      if (connected()) lane->go_on();  // one that breaks at once interrupts the session again
  }
  close_what_was_closed();
  const std::lock_guard lock{mutex_};
  room_.notify_all();
  fate_.notify_all();
}

void SessionCore::close_what_was_closed() noexcept {
  std::vector<std::uint64_t> closed;
  {
    const std::lock_guard lock{mutex_};
    closed.swap(to_close_);
  }
  for (const std::uint64_t grant_id : closed) close_unanswered(grant_id);
}

Status SessionCore::settled(Deadline deadline) {
  std::unique_lock lock{mutex_};
  // A lane that is about to break has told of it before its operations end.
  const auto known = [this] {
    return ended() || (connected() && std::none_of(lanes_.begin(), lanes_.end(),
                                                   [](const auto& l) { return l->breaking(); }));
  };
  if (!fate_.wait_until(lock, deadline, known)) return Error{Code::kTimedOut, "settled"};
  const Reason reason = lost_reason();
  if (connected() || reason == Reason::kNewMemory || reason == Reason::kLapsed) return {};
  return Error{Code::kConnectionLost, "settled"}.with_reason(reason);
}

void SessionCore::tick(Clock::time_point now) noexcept {
  if (!connected() || version_ < 2 || lease_ <= lease_.zero()) return;
  const bool was_stopped = ticked_at_ != Clock::time_point{} && now - ticked_at_ > kOwnPause;
  ticked_at_ = now;
  if (was_stopped) heard_at_.store(now.time_since_epoch().count(), std::memory_order_relaxed);
  const Clock::time_point heard{Clock::duration{heard_at_.load(std::memory_order_relaxed)}};
  if (now - heard > lease_) return lose(Reason::kSilent, ClientMetrics::kPeerGone);
  if (!was_stopped && now - std::max(heard, pinged_at_) < lease_ / 4) return;
  pinged_at_ = now;
  control::Request ping;
  ping.mutable_ping();
  ask_unanswered(std::move(ping));
}

/// So that the server need not keep anything. The answer is not waited for.
void SessionCore::say_goodbye() noexcept {
  if (!connected() || version_ < 2) return;
  control::Request goodbye;
  goodbye.mutable_goodbye();
  ask_unanswered(std::move(goodbye));
  endpoint()->flush(Clock::now() + kGoodbyeTime);
}

}  // namespace remora::detail
