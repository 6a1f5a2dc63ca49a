/// The fate of a client's session: interrupted, resumed, ended; keep-alive while it is up.
///
/// When a lane breaks, or the server is gone or silent, the session is interrupted: its lanes are
/// broken off and a thread of its own connects again. The server destroys the old lanes before it
/// answers, and the session goes on with the grants it had. Where the server has new memory, or has
/// given the session up, it ends.

#include <algorithm>
#include <array>
#include <exception>
#include <future>
#include <utility>

#include <remora/start_thread.h>

#include "base/log.h"
#include "client/engine/engine_core.h"
#include "client/session/backoff.h"
#include "client/session/session_core.h"

namespace remora::detail {

using control::Request;
using transport::Lane;

namespace {

/// Bounds how long a thread outlives its session.
constexpr std::chrono::milliseconds kAttemptTime{2000};
/// Also where the keys of many grants have taken longer than that.
constexpr std::chrono::milliseconds kHearTime{500};
constexpr std::chrono::milliseconds kLastWordTime{50};
/// Without a tick for so long this process was itself stopped: nobody is blamed for the silence.
constexpr std::chrono::seconds kOwnPause{2};

}  // namespace

void SessionCore::fail(Reason reason, std::uint64_t connection) noexcept {
  if (!connected()) return;  // it has ended before, and its lanes may be going
  // What is mapped breaks with its server only.
  const bool lane = reason == Reason::kLaneBroken && kind() != TransportKind::kShm;
  End by = lane ? ClientMetrics::kLaneBroken : ClientMetrics::kPeerGone;
  const LaneFault fault = lane ? lane_fault() : LaneFault::kNone;
  if (fault == LaneFault::kDeadline) by = ClientMetrics::kDeadline;
  if (fault == LaneFault::kRefused) by = ClientMetrics::kRefused;
  lose(reason, by, fault, connection);
}

/// Before the end of a lane, or of what was sent, is taken for the session's: what the server has
/// said until then is read, which may be why. That is for the control thread to do.
void SessionCore::hear_last_word() noexcept {
  if (!connected() || loop_.is_loop_thread()) return;
  try {
    const auto heard = std::make_shared<std::promise<void>>();
    auto passed = heard->get_future();
    std::uint64_t connection = 0;
    std::shared_ptr<transport::ClientEndpoint> endpoint;
    {
      const std::lock_guard lock{mutex_};
      connection = connection_;
      endpoint = endpoint_;
    }
    loop_.run_soon([weak = weak_from_this(), endpoint, connection, heard] {
      if (const auto alive = weak.lock()) alive->on_readable(*endpoint, connection);
      heard->set_value();
    });
    (void)passed.wait_for(kLastWordTime);
  } catch (const std::exception& error) {  // no memory: the reason is a guess then
    log::debug("session with {}: {}", dial_.server, error.what());
  }
}

Reason SessionCore::explained(Reason reason) noexcept {
  if (reason != Reason::kPeerGone && reason != Reason::kLaneBroken && reason != Reason::kSilent)
    return reason;
  hear_last_word();
  const Reason told = told_or(reason);
  const Reason unreached = unreached_.load();
  return told == reason && !connected() && unreached != Reason::kNone ? unreached : told;
}

/// By the thread that has found a lane broken, without it.
void SessionCore::lane_gone() noexcept {
  hear_last_word();
  if (!connected()) return;
  const Turn turn{*this};
  {
    // Told late: the session has been interrupted and goes on by other lanes.
    const std::lock_guard lock{mutex_};
    if (std::none_of(lanes_.begin(), lanes_.end(), [](const auto& lane) { return lane->broken(); }))
      return;
  }
  fail(Reason::kLaneBroken);
}

/// What broke the first of the lanes, if an operation did.
LaneFault SessionCore::lane_fault() noexcept {
  const std::lock_guard lock{mutex_};
  for (const auto& lane : lanes_)
    if (const LaneFault fault = lane->fault(); fault != LaneFault::kNone) return fault;
  return LaneFault::kNone;
}

void SessionCore::lose(Reason reason, End by, LaneFault fault, std::uint64_t connection) noexcept {
  const Turn turn{*this};
  {
    const std::lock_guard lock{mutex_};
    if (connection != 0 && connection != connection_) return;
    const bool unexplained = reason == Reason::kPeerGone || reason == Reason::kLaneBroken;
    if (unexplained && ending_reason_ != Reason::kNone) reason = ending_reason_;
  }
  const State state = state_.load();
  if (state == State::kEnded || state == State::kDown) return;
  // The new connection has gone before it was one: the next attempt.
  if (state == State::kJoining) {
    (void)leave_connection(State::kDown, reason, by);
    return;
  }
  if (resumable_ && counted_)
    interrupt(reason, by, fault);
  else
    end(reason, by, fault);
}

/// The connection there is is left, and where that is the end, counted: who waits for an answer
/// hears of it. False: the session has ended meanwhile, by its destructor, which takes no turn.
bool SessionCore::leave_connection(State next, Reason reason, End by) noexcept {
  std::shared_ptr<transport::ClientEndpoint> endpoint;
  {
    const std::lock_guard lock{mutex_};
    if (ended()) return false;
    if (next == State::kEnded) {
      ended_by_ = by;
      if (counted_) metrics_->session_ended(by);
    } else if (state_.load() == State::kUp) {
      metrics_->session_interrupted(by);
    }
    lost_reason_.store(reason);
    state_.store(next, std::memory_order_release);
    for (auto& [id, waiter] : waiters_)
      if (waiter != nullptr) waiter->ready.notify_all();
    std::erase_if(waiters_, [](const auto& entry) { return entry.second == nullptr; });
    room_.notify_all();
    fate_.notify_all();
    endpoint = endpoint_;
  }
  // What the server has said before is still read: it may say why grants went.
  if (next != State::kEnded) endpoint->shutdown();
  return true;
}

/// With turning_.
void SessionCore::interrupt(Reason reason, End by, LaneFault fault) noexcept {
  if (!leave_connection(State::kDown, reason, by)) return;
  log::info("session with {} over {}: interrupted: {}; connecting again", dial_.server,
            to_string(kind()), to_string(reason));
  add_news(engine_->options().handlers.on_interrupted, told_or(reason));
  // What one has done is uncertain while another goes on: they end together, and flush together.
  for (const auto& lane : lanes_) lane->blame(fault);
  for (const auto& lane : lanes_) lane->move_to_error();
  for (const auto& lane : lanes_) lane->interrupt(reason);
  {
    const std::lock_guard lock{mutex_};
    ++interruptions_;
    if (std::exchange(reconnector_at_work_, true)) return;
  }
  if (reconnector_.joinable()) reconnector_.join();  // it has ended its work
  auto thread = start_thread("remora-connect", [this] { reconnect(); });
  if (thread) {
    reconnector_ = std::move(*thread);
    return;
  }
  log::warn("session with {}: no thread to connect again: {}", dial_.server,
            thread.error().message());
  {
    const std::lock_guard lock{mutex_};
    reconnector_at_work_ = false;
  }
  // Why it was interrupted is in the log; why it does not come back is what can be mended.
  end(Reason::kNoThread, by, fault);
}

void SessionCore::end(Reason reason, End by, LaneFault fault) noexcept {
  const Turn turn{*this};
  if (ended()) return;
  std::array<LaneDriver*, kLanesMax> lanes{};
  {
    const std::lock_guard lock{mutex_};
    std::transform(lanes_.begin(), lanes_.end(), lanes.begin(),
                   [](const auto& lane) { return lane.get(); });
  }
  if (!leave_connection(State::kEnded, reason, by)) return;
  for (LaneDriver* const lane : lanes)
    if (lane != nullptr) lane->blame(fault);
  for (LaneDriver* const lane : lanes)
    if (lane != nullptr) lane->move_to_error();
  for (LaneDriver* const lane : lanes)
    if (lane != nullptr) lane->fail(reason);
  endpoint()->shutdown();
  if (!counted_) return;
  const SessionHandlers& handlers = engine_->options().handlers;
  add_news(reason == Reason::kNewMemory ? handlers.on_stale : handlers.on_lost, told_or(reason));
}

/// The reconnector's thread: until the session is up, or has ended.
void SessionCore::reconnect() noexcept {
  (void)engine_->placement().bind_thread();
  {
    const std::lock_guard lock{mutex_};
    reconnecting_ = std::this_thread::get_id();
  }
  std::uint64_t interruption = 0;
  Deadline until{};
  Backoff backoff;
  while (true) {
    tell_news();
    {
      const std::lock_guard lock{mutex_};
      const State state = state_.load();
      if (state == State::kUp || state == State::kEnded) {
        if (!news_.empty() && !telling_) continue;
        reconnector_at_work_ = false;
        reconnecting_ = {};
        return;
      }
      // Each has all of its time.
      if (std::exchange(interruption, interruptions_) != interruptions_) {
        until = deadline_after(engine_->options().reconnect_for);
        backoff.begin_anew();
      }
    }
    if (Clock::now() >= until) {
      // That this host lacked something says more than that the old connection went.
      const Reason why = attempt_failed_by_ == Reason::kLocalShortage ? attempt_failed_by_
                                                                      : explained(lost_reason());
      log::warn("session with {}: not reached again in time: {}", dial_.server, to_string(why));
      end(why, ClientMetrics::kPeerGone);
    } else if (sleep_unless_ended(
                   std::min<Clock::duration>(backoff.next(), until - Clock::now()))) {
      if (!join_again(kAttemptTime)) return;
    }
  }
}

/// False: the session has ended.
bool SessionCore::sleep_unless_ended(std::chrono::nanoseconds pause) noexcept {
  std::unique_lock lock{mutex_};
  return !fate_.wait_for(lock, pause, [this] { return ended(); });
}

/// Why an attempt to connect has failed, for operations that wait for the session.
Reason SessionCore::why_unreached(const Error& error) noexcept {
  if (error.reason() == Reason::kLocalShortage) return Reason::kLocalShortage;
  if (error.code() == Code::kConnectionRefused) return Reason::kPeerGone;
  return error.reason() == Reason::kSilent ? Reason::kSilent : Reason::kUnreachable;
}

/// One attempt: the session is up again, or not yet, or never.
bool SessionCore::join_again(std::chrono::nanoseconds time) noexcept {
  const Deadline deadline = Clock::now() + time;
  const std::shared_ptr<Attempt> attempt = attempt_;
  {
    const std::lock_guard lock{attempt->mutex};
    if (attempt->abandoned) return true;  // it is joined: it has to return to its loop
    attempt->connecting = true;
  }
  auto endpoint = attempt->dial.connect(deadline);
  {
    const std::lock_guard lock{attempt->mutex};
    if (attempt->abandoned) return false;
    attempt->connecting = false;
  }
  attempt_failed_by_ = endpoint ? Reason::kNone : endpoint.error().reason();
  if (!endpoint) {
    log::debug("session with {}: {}", dial_.server, endpoint.error().message());
    unreached_.store(why_unreached(endpoint.error()));
    return true;
  }
  const std::shared_ptr<transport::ClientEndpoint> joined = std::move(*endpoint);
  if (joined->device() != device_) return true;  // the route has moved: keys are of no use there
  std::uint64_t connection = 0;
  {
    const Turn turn{*this};
    const std::lock_guard lock{mutex_};
    if (ended()) return true;
    endpoint_ = joined;
    connection = ++connection_;
    ending_reason_ = Reason::kNone;
    heard_all_.store(false);
    state_.store(State::kJoining);
  }
  Status status = watch(joined, connection);
  if (status) status = resume(deadline);
  if (status) return true;
  attempt_failed_by_ = status.error().reason();
  log::debug("session with {}: {}", dial_.server, status.error().message());
  // What is final has ended the session by now.
  lose(status.error().reason() != Reason::kNone ? status.error().reason() : Reason::kPeerGone,
       ClientMetrics::kPeerGone, LaneFault::kNone, connection);
  return true;
}

Status SessionCore::resume(Deadline deadline) {
  if (auto status = hello(deadline); !status) {
    // A server that does not want this client any more will not want it later.
    const Reason reason = status.error().reason();
    if (reason == Reason::kVersion || reason == Reason::kAuthentication ||
        reason == Reason::kNewMemory || reason == Reason::kLapsed || reason == Reason::kTooOften)
      end(reason, ClientMetrics::kPeerGone);
    return status;
  }
  auto lanes = lanes_again(deadline);
  if (!lanes) return lanes.error();
  if (auto status = renew_keys(); !status) return status;
  hear_of_grants(std::max(deadline, Clock::now() + kHearTime));
  if (!go_on(std::move(*lanes)))
    return Error{Code::kConnectionLost, "resume"}.with_reason(lost_reason());
  return {};
}

/// What the server says of grants that went meanwhile is heard before anything is posted: each
/// operation of one of them would break the lanes again. It says one thing at a time.
void SessionCore::hear_of_grants(Deadline deadline) noexcept {
  constexpr std::chrono::milliseconds kBetweenLooks{1};
  // Whoever keeps a grant in flight for longer is not waited for.
  constexpr std::chrono::milliseconds kPatience{100};
  std::uint64_t heard = 0;
  do {
    heard = events_heard_.load();
    Request ping;
    ping.mutable_ping();
    if (!call(std::move(ping), "resume", deadline)) return;
    const Deadline until = std::min(deadline, Clock::now() + kPatience);
    while (!revocations_.idle() && Clock::now() < until && sleep_unless_ended(kBetweenLooks)) {
    }
  } while (heard != events_heard_.load() && Clock::now() < deadline);
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
    if (!lane) {
      // Unused: whoever joins this thread need not wait for what its device is slow to give back.
      for (const auto& made : lanes) made->let_go();
      return lane.error();
    }
    lanes.push_back(std::move(*lane));
  }
  return lanes;
}

/// False: the connection has gone again, or the session has ended.
bool SessionCore::go_on(std::vector<std::unique_ptr<Lane>> lanes) noexcept {
  {
    const Turn turn{*this};
    if (state_.load() != State::kJoining) {
      for (const auto& lane : lanes) lane->let_go();
      return false;
    }
    bool fit = true;
    for (std::size_t i = 0; i < lanes_.size(); ++i)
      fit = lanes_[i]->replace(i < lanes.size() ? std::move(lanes[i]) : nullptr) && fit;
    if (!fit) {
      log::warn("session with {}: the new lanes can do less than the old ones; it ends",
                dial_.server);
      end(Reason::kLaneBroken, ClientMetrics::kLaneBroken);
      return false;
    }
    {
      const std::lock_guard lock{mutex_};
      if (ended()) return false;
      state_.store(State::kUp, std::memory_order_release);
      told_reason_ = Reason::kNone;
      unreached_.store(Reason::kNone);
    }
    add_news(engine_->options().handlers.on_resumed, lost_reason());
    metrics_->session_resumed();
    log::info("session with {} over {}: resumed", dial_.server, to_string(kind()));
    for (const auto& lane : lanes_)
      if (connected()) lane->go_on();  // one that breaks at once interrupts the session again
    const std::lock_guard lock{mutex_};
    room_.notify_all();
    fate_.notify_all();
    if (!connected()) return false;
  }
  send_closes();
  return true;
}

Status SessionCore::settled(Deadline deadline) { return settled({.until = deadline, .stop = {}}); }

Status SessionCore::settled(const ControlLimits& limits) {
  const std::stop_callback unwanted{limits.stop, [this] {
                                      const std::lock_guard lock{mutex_};
                                      fate_.notify_all();
                                    }};
  std::unique_lock lock{mutex_};
  // A lane that is about to break has told of it before its operations end.
  const auto known = [&] {
    return limits.stop.stop_requested() || ended() ||
           (connected() && std::none_of(lanes_.begin(), lanes_.end(),
                                        [](const auto& l) { return l->breaking(); }));
  };
  if (!fate_.wait_until(lock, limits.until, known))
    return Error{Code::kTimedOut, "settled"}.with_server(dial_.server).with_reason(lost_reason());
  if (limits.stop.stop_requested())
    return Error{Code::kCancelled, "settled"}.with_server(dial_.server);
  const Reason reason = lost_reason();
  // That it came too often the server says before it has proven who it is: with a key, anybody
  // could.
  const bool given_up =
      reason == Reason::kLapsed || (reason == Reason::kTooOften && !engine_->options().key);
  if (connected() || reason == Reason::kNewMemory || given_up) return {};
  return Error{Code::kConnectionLost, "settled"}.with_server(dial_.server).with_reason(reason);
}

/// Of an operation over mapped memory that has found the session interrupted: see
/// MappedMemoryDriver::SessionAwaiter.
std::optional<Outcome> SessionCore::await_return(const OperationRecord& operation) noexcept {
  // These threads bring the session back, or serve others meanwhile.
  if (!resumable_ || loop_.is_loop_thread() || engine_->on_poller()) return std::nullopt;
  {
    std::unique_lock lock{mutex_};
    if (std::this_thread::get_id() == reconnecting_) return std::nullopt;
    const auto known = [this] { return ended() || (connected() && !lanes_.front()->broken()); };
    if (!fate_.wait_until(lock, operation.deadline, known))
      return Outcome::failure(Code::kTimedOut, lost_reason());
    if (ended()) return session_gone(lost_reason());
  }
  const Reason why = revocations_.revoked(operation);
  return why == Reason::kNone ? Outcome{} : Outcome::failure(Code::kAccessRefused, why);
}

/// The same for one that its driver keeps: see MappedMemoryDriver::SessionLook.
std::optional<Outcome> SessionCore::look_for_return(const OperationRecord& operation) noexcept {
  if (const Reason why = revocations_.revoked(operation); why != Reason::kNone)
    return Outcome::failure(Code::kAccessRefused, why);
  if (ended()) return session_gone(lost_reason());
  if (!connected() || lanes_.front()->broken()) return std::nullopt;
  // A grant that went meanwhile was told of before the session was up.
  const Reason why = revocations_.revoked(operation);
  return why == Reason::kNone ? Outcome{} : Outcome::failure(Code::kAccessRefused, why);
}

void SessionCore::tick(Clock::time_point now) noexcept {
  std::uint64_t connection = 0;
  {
    const std::lock_guard lock{mutex_};
    connection = connection_;
  }
  if (!connected() || version_ < 2 || lease_ <= lease_.zero()) return;
  const bool was_stopped = ticked_at_ != Clock::time_point{} && now - ticked_at_ > kOwnPause;
  ticked_at_ = now;
  if (was_stopped) heard_at_.store(now.time_since_epoch().count(), std::memory_order_relaxed);
  const Clock::time_point heard{Clock::duration{heard_at_.load(std::memory_order_relaxed)}};
  if (now - heard > lease_)
    return lose(Reason::kSilent, ClientMetrics::kPeerGone, LaneFault::kNone, connection);
  send_closes();  // what could not be sent when there was room
  if (!was_stopped && now - std::max(heard, pinged_at_) < lease_ / 4) return;
  {
    // One at a time: that the server is busy is no reason to ask it more.
    const std::lock_guard lock{mutex_};
    if (waiters_.contains(ping_id_)) return;
  }
  control::Request ping;
  ping.mutable_ping();
  if (ask_unanswered(std::move(ping), connection, &ping_id_) == Told::kSent) pinged_at_ = now;
}

/// So that the server need not keep anything. The answer is not waited for.
void SessionCore::say_goodbye() noexcept {
  if (!connected() || version_ < 2) return;
  control::Request goodbye;
  goodbye.mutable_goodbye();
  if (ask_unanswered(std::move(goodbye)) != Told::kSent) return;
  const std::lock_guard lock{send_mutex_};  // the reconnector may have something to say
  const Deadline until = Clock::now() + engine_->goodbye_time();
  endpoint()->flush(until);
  if (Clock::now() >= until) engine_->goodbye_unheard();
}

}  // namespace remora::detail
