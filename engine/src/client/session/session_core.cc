#include "client/session/session_core.h"

#include <algorithm>
#include <stop_token>
#include <thread>
#include <utility>

#include <remora/assert.h>

#include "base/log.h"
#include "client/services/engine_services.h"

namespace remora::detail {

using control::Request;
using transport::Lane;
using transport::Notice;

SessionCore::SessionCore(std::shared_ptr<EngineServices> engine, ServerConnector connector,
                         std::shared_ptr<transport::ClientEndpoint> endpoint, EventLoop& loop)
    : engine_{std::move(engine)},
      loop_{loop},
      connector_{std::move(connector)},
      kind_{endpoint->kind()},
      domain_{endpoint->memory_domain()},
      handshake_{*this},
      channel_{*this, loop, std::move(endpoint)},
      events_{*this},
      dispatcher_{*this},
      keep_alive_{*this},
      grant_keys_{*this},
      lanes_{*this},
      reconnector_{*this, connector_},
      revocations_{*this, loop} {}

Result<std::shared_ptr<SessionCore>> SessionCore::start(std::shared_ptr<EngineServices> engine,
                                                        ServerConnector connector,
                                                        Deadline deadline) {
  auto endpoint = connector.connect(deadline);
  if (!endpoint) return endpoint.error();
  auto loop = engine->control_loop();
  if (!loop) return loop.error();
  auto session = std::make_shared<SessionCore>(std::move(engine), std::move(connector),
                                               std::move(*endpoint), **loop);
  auto metrics = ClientMetrics::create(session->engine_->options().registry, session->kind());
  if (!metrics) return metrics.error();
  session->metrics_ = std::move(*metrics);
  if (auto status = session->channel_.watch(session->channel_.connection()); !status)
    return status.error();
  if (auto status = session->handshake_.say_hello(deadline); !status) return status.error();
  // Before the lanes, since opening them may take longer than the lease.
  if (const auto lease = session->handshake_.lease(); lease > lease.zero())
    session->engine_->ticker().add(session, lease, session->loop_, session->engine_);
  if (auto status = session->lanes_.open(deadline); !status) return status.error();
  if (session->domain_ != nullptr) session->domain_->show_counters(session->engine_->registry());
  if (auto status = session->begin(); !status) return status.error();
  return session;
}

/// Errors: kConnectionLost: the session has ended meanwhile. No caller has it, no handler is called
/// for it, and no metric counts it.
Status SessionCore::begin() {
  const Transition transition{*this};
  const MutexLock lock{mutex_};
  if (ended()) return Error{Code::kConnectionLost, "connect"}.with_reason(lost_reason());
  REMORA_ASSERT(!begun_, "a session begins once");
  metrics_->session_began();
  begun_ = true;
  return {};
}

SessionCore::~SessionCore() {
  channel_.unwatch();
  say_goodbye();
  {
    const MutexLock lock{mutex_};
    if (begun_ && !ended()) metrics_->session_ended(ClientMetrics::kClosed);
    // From here on a lane that breaks does not interrupt the session.
    state_.store(SessionState::kEnded, std::memory_order_release);
    channel_.close();
    state_changed_.notify_all();
  }
  reconnector_.stop();
  lanes_.close();
  channel_.endpoint()->shutdown();
}

/// Tells the server that the client will not resume the session. Does not wait for the answer.
void SessionCore::say_goodbye() noexcept {
  if (!connected() || version() < 2) return;
  Request goodbye;
  goodbye.mutable_goodbye();
  if (channel_.ask_unanswered(std::move(goodbye)) != ControlChannel::Sent::kSent) return;
  const Deadline until = Clock::now() + engine_->goodbye_time();
  channel_.flush(until);
  if (Clock::now() >= until) engine_->goodbye_not_sent();
}

// clang does not follow a mutex that a member of a scoped lock names.
SessionCore::Transition::Transition(SessionCore& session) noexcept REMORA_NO_THREAD_SAFETY_ANALYSIS
    : session_{session} {
  session_.transition_mutex_.lock();
}

SessionCore::Transition::~Transition() REMORA_NO_THREAD_SAFETY_ANALYSIS {
  session_.transition_mutex_.unlock();
  session_.dispatcher_.dispatch();
}

void SessionCore::set_state(SessionState next) noexcept {
  REMORA_ASSERT(may_follow(state_.load(), next), "a session's state follows the one before");
  state_.store(next, std::memory_order_release);
}

void SessionCore::fail(Reason reason, std::uint64_t connection) noexcept {
  if (!connected()) return;  // the session has ended, and its lanes may be under destruction
  const Transition transition{*this};
  fail_now(reason, connection);
}

void SessionCore::fail_now(Reason reason, std::uint64_t connection) noexcept {
  if (!connected()) return;
  // Mapped memory has no lane that can break alone: the server has failed.
  const bool lane = reason == Reason::kLaneBroken && kind() != TransportKind::kShm;
  End by = lane ? ClientMetrics::kLaneBroken : ClientMetrics::kPeerGone;
  const LaneFault fault = lane ? lanes_.fault() : LaneFault::kNone;
  if (fault == LaneFault::kDeadline) by = ClientMetrics::kDeadline;
  if (fault == LaneFault::kRefused) by = ClientMetrics::kRefused;
  lose_now(reason, by, fault, connection);
}

Reason SessionCore::explain(Reason reason) noexcept {
  if (reason != Reason::kPeerGone && reason != Reason::kLaneBroken && reason != Reason::kSilent)
    return reason;
  channel_.await_last_messages();
  const Reason told = events_.told_or(reason);
  const Reason unreached = reconnector_.unreached();
  return told == reason && !connected() && unreached != Reason::kNone ? unreached : told;
}

void SessionCore::on_lane_broken() noexcept {
  channel_.await_last_messages();
  if (!connected()) return;
  if (transition_mutex_.held_by_this_thread()) {
    // This thread is in resume() or take_rail_back(), which acts on it.
    transition_mutex_.assert_held();
    transition_mutex_.note_broken_lane();
    return;
  }
  const Transition transition{*this};
  // If no lane is broken, the session was interrupted for this lane before, and has new lanes.
  if (!lanes_.any_broken()) return;
  fail_now(Reason::kLaneBroken, 0);
}

void SessionCore::lose_connection(Reason reason, End by, LaneFault fault,
                                  std::uint64_t connection) noexcept {
  const Transition transition{*this};
  lose_now(reason, by, fault, connection);
}

void SessionCore::lose_now(Reason reason, End by, LaneFault fault,
                           std::uint64_t connection) noexcept {
  if (connection != 0 && connection != channel_.number()) return;
  reason = events_.ending_or(reason);
  const SessionState now = state();
  if (now == SessionState::kEnded || now == SessionState::kDown) return;
  // The new connection was lost before the session was up: the reconnector tries again.
  if (now == SessionState::kJoining) {
    (void)leave_connection(SessionState::kDown, reason, by);
    return;
  }
  if (handshake_.resumable() && has_begun())
    interrupt_now(reason, by, fault);
  else
    end_now(reason, by, fault);
}

/// Sets the state `next`, which is kDown or kEnded, counts it, and abandons the connection: calls
/// that wait for an answer end. False: the destructor, which makes no Transition, has ended the
/// session meanwhile.
bool SessionCore::leave_connection(SessionState next, Reason reason, End by) noexcept {
  std::shared_ptr<transport::ClientEndpoint> endpoint;
  {
    const MutexLock lock{mutex_};
    if (ended()) return false;
    if (next == SessionState::kEnded) {
      if (begun_) metrics_->session_ended(by);
    } else if (state() == SessionState::kUp) {
      metrics_->session_interrupted(by);
    }
    lost_reason_.store(reason);
    set_state(next);
    endpoint = channel_.abandon_connection(next);
    state_changed_.notify_all();
  }
  // Messages that have arrived are still read, since they may say why the server has revoked
  // grants.
  if (next != SessionState::kEnded) endpoint->shutdown();
  return true;
}

void SessionCore::interrupt_now(Reason reason, End by, LaneFault fault) noexcept {
  if (!leave_connection(SessionState::kDown, reason, by)) return;
  log::info({"session.interrupted", "server transport reason"},
            "session with {} over {}: interrupted: {}; connecting again", connector_.server,
            to_string(kind()), to_string(reason));
  dispatcher_.add(engine_->options().handlers.on_interrupted, events_.told_or(reason));
  lanes_.interrupt(reason, fault);
  const auto endpoint = channel_.endpoint();
  if (transport::ConnectionRails* const rails = endpoint->rails())
    for (std::size_t i = 0; i < lanes().size(); ++i)
      if (lanes()[i]->unanswered()) rails->rail_failed(i);
  const Status begun = reconnector_.begin();
  if (begun) return;
  log::warn({"session.no_thread", "server reason"},
            "session with {}: no thread to connect again: {}", connector_.server,
            begun.error().message());
  // The log has the reason of the interruption. The application gets the reason why the session
  // cannot be resumed, which it can act on.
  end_now(Reason::kNoThread, by, fault);
}

/// Called when a rail that failed works again. When no request is posted on any lane, the session
/// connects again, and its lanes use all rails; operations wait meanwhile. The control thread calls
/// it.
void SessionCore::take_rail_back() noexcept {
  if (!connected() || !handshake_.resumable() || !has_begun()) return;
  const Transition transition{*this};
  if (!connected() || !rail_hold_.is_due(Clock::now())) return;
  const bool held = lanes_.hold(Clock::now() + rail_hold_.time());
  rail_hold_.ended(held, Clock::now());
  // A lane may break while this thread waits for it.
  if (transition_mutex_.take_broken_lane()) return fail_now(Reason::kLaneBroken, 0);
  if (!held) return;  // a later tick tries again
  interrupt_now(Reason::kNone, ClientMetrics::kRailReturned, LaneFault::kNone);
}

void SessionCore::end(Reason reason, End by) noexcept {
  const Transition transition{*this};
  end_now(reason, by, LaneFault::kNone);
}

void SessionCore::end_now(Reason reason, End by, LaneFault fault) noexcept {
  if (ended()) return;
  if (!leave_connection(SessionState::kEnded, reason, by)) return;
  lanes_.fail(reason, fault);
  channel_.endpoint()->shutdown();
  if (!has_begun()) return;
  const SessionHandlers& handlers = engine_->options().handlers;
  dispatcher_.add(reason == Reason::kNewMemory ? handlers.on_stale : handlers.on_lost,
                  events_.told_or(reason));
}

std::uint64_t SessionCore::begin_joining(std::shared_ptr<transport::ClientEndpoint> endpoint) {
  const Transition transition{*this};
  const MutexLock lock{mutex_};
  if (ended()) return 0;
  events_.begin_connection();
  set_state(SessionState::kJoining);
  return channel_.begin_joining(std::move(endpoint));
}

bool SessionCore::resume(std::vector<std::unique_ptr<Lane>> lanes) noexcept {
  {
    const Transition transition{*this};
    if (state() != SessionState::kJoining) {
      for (const auto& lane : lanes) lane->close_later();
      return false;
    }
    if (!lanes_.replace(std::move(lanes))) {
      log::warn({"session.lanes_differ", "server"},
                "session with {}: the new lanes can do less than the old ones; it ends",
                connector_.server);
      end_now(Reason::kLaneBroken, ClientMetrics::kLaneBroken, LaneFault::kNone);
      return false;
    }
    if (!set_up_again()) return false;
    dispatcher_.add(engine_->options().handlers.on_resumed, lost_reason());
    metrics_->session_resumed();
    log::info({"session.resumed", "server transport"}, "session with {} over {}: resumed",
              connector_.server, to_string(kind()));
    for (const auto& lane : lanes_.all()) {
      if (!connected()) break;
      lane->go_on();
      // A lane that breaks during go_on() interrupts the session again.
      if (transition_mutex_.take_broken_lane()) fail_now(Reason::kLaneBroken, 0);
    }
    const MutexLock lock{mutex_};
    channel_.wake_calls();
    state_changed_.notify_all();
    if (!connected()) return false;
  }
  channel_.send_closes();
  return true;
}

/// False: the destructor has ended the session.
bool SessionCore::set_up_again() noexcept {
  const MutexLock lock{mutex_};
  if (ended()) return false;
  set_state(SessionState::kUp);
  rail_hold_.reset();
  channel_.open();
  events_.session_is_up();
  reconnector_.session_is_up();
  return true;
}

bool SessionCore::sleep_unless_ended(std::chrono::nanoseconds pause) noexcept {
  MutexLock lock{mutex_};
  return !state_changed_.wait_for(lock, pause, [this] { return ended(); });
}

std::shared_ptr<MemoryReleaser> SessionCore::releaser_of(const LaneDriver& lane) const noexcept {
  return lane.needs_keys() ? engine_->memory().releaser() : nullptr;
}

Result<SessionCore::Answer> SessionCore::call(Request request, Operation operation,
                                              Deadline deadline, std::vector<std::byte>* raw) {
  auto answer = channel_.call(std::move(request), operation, deadline, raw);
  if (!answer) return answer.error().with_server(connector_.server);
  return answer;
}

Result<SessionCore::Answer> SessionCore::call(Request request, Operation operation) {
  return call(std::move(request), operation, deadline_after(engine_->options().control_deadline));
}

Status SessionCore::settled(Deadline deadline) { return settled({.until = deadline, .stop = {}}); }

Status SessionCore::settled(const ControlLimits& limits) {
  const std::stop_callback unwanted{limits.stop, [this] {
                                      const MutexLock lock{mutex_};
                                      state_changed_.notify_all();
                                    }};
  MutexLock lock{mutex_};
  // A lane is marked as breaking before its operations end, so no caller can see their failure and
  // then find the session settled.
  const auto known = [&] {
    return limits.stop.stop_requested() || ended() || (connected() && !lanes_.any_breaking());
  };
  if (!state_changed_.wait_until(lock, limits.until, known))
    return Error{Code::kTimedOut, "settled"}
        .with_server(connector_.server)
        .with_reason(lost_reason());
  if (limits.stop.stop_requested())
    return Error{Code::kCancelled, "settled"}.with_server(connector_.server);
  const Reason reason = lost_reason();
  // The server sends kTooOften before it has proven its identity, so a client with a key does not
  // trust it.
  const bool given_up =
      reason == Reason::kLapsed || (reason == Reason::kTooOften && !engine_->options().key);
  if (connected() || reason == Reason::kNewMemory || given_up) return {};
  return Error{Code::kConnectionLost, "settled"}.with_server(connector_.server).with_reason(reason);
}

std::optional<Outcome> SessionCore::await_return(const OperationRecord& operation) noexcept {
  // The control thread must resume the session, and a poller serves other queues: neither may block
  // here.
  if (!handshake_.resumable() || loop_.is_loop_thread() || engine_->on_poller())
    return std::nullopt;
  {
    MutexLock lock{mutex_};
    if (reconnector_.is_own_thread()) return std::nullopt;
    const auto known = [this] { return ended() || (connected() && !lanes().front()->broken()); };
    if (!state_changed_.wait_until(lock, operation.deadline, known))
      return Outcome::failure(Code::kTimedOut, lost_reason());
    if (ended()) return session_gone(lost_reason());
  }
  const Reason why = revocations_.revoked(operation);
  return why == Reason::kNone ? Outcome{} : Outcome::failure(Code::kAccessRefused, why);
}

std::optional<Outcome> SessionCore::check_return(const OperationRecord& operation) noexcept {
  if (const Reason why = revocations_.revoked(operation); why != Reason::kNone)
    return Outcome::failure(Code::kAccessRefused, why);
  if (ended()) return session_gone(lost_reason());
  if (!connected() || lanes().front()->broken()) return std::nullopt;
  // Grants that were revoked during the interruption were marked before the session was up.
  const Reason why = revocations_.revoked(operation);
  return why == Reason::kNone ? Outcome{} : Outcome::failure(Code::kAccessRefused, why);
}

Status SessionCore::notify(const Notice& notice, Deadline deadline) {
  constexpr std::chrono::microseconds kPause{200};
  while (true) {
    Request request;
    control::NotifyRequest& told = *request.mutable_notify();
    told.set_grant_id(notice.grant_id);
    told.set_offset(notice.offset_bytes);
    told.set_length_bytes(notice.length_bytes);
    told.set_tag(notice.tag);
    auto answer = call(std::move(request), "write_notify", deadline);
    if (answer) return {};
    // The server's application has not handled the earlier notices yet.
    if (answer.error().code() != Code::kWouldBlock) return answer.error();
    if (Clock::now() + kPause >= deadline) return Error{Code::kTimedOut, "write_notify"};
    std::this_thread::sleep_for(kPause);
  }
}

Result<SessionCore::Answer> SessionCore::ask_for(const std::string& name, Rights rights,
                                                 Opening how, Deadline deadline) {
  Request request;
  const auto fill = [&](auto& asked) {
    asked.set_name(name);
    asked.set_rights(static_cast<std::uint32_t>(rights));
  };
  if (how == Opening::kOpen) {
    fill(*request.mutable_open());
    return call(std::move(request), "open", deadline);
  }
  if (version() < 2) return Error{Code::kUnsupported, "fence (an older server)"}.with_subject(name);
  fill(*request.mutable_fence());
  return call(std::move(request), "fence", deadline);
}

Result<OpenedGrant> SessionCore::open(const std::string& name, Rights rights, Deadline deadline,
                                      Opening how) {
  if (!lanes_.take_reads() &&
      (includes(rights, Rights::kRead) || includes(rights, Rights::kAtomic)))
    return Error{Code::kUnsupported,
                 "open for reads or atomics: the devices of this connection "
                 "together keep none in flight (max_qp_init_rd_atom, "
                 "max_qp_rd_atom); open it for writes alone"}
        .with_subject(name);
  auto answer = ask_for(name, rights, how, deadline);
  if (!answer) return answer.error();
  const control::OpenReply& opened =
      how == Opening::kFence ? answer->reply.fence().opened() : answer->reply.open();
  // The server has given the grant, so every failure from here on closes it.
  const auto give_back = [&](const Error& error) {
    channel_.close_grant(opened.grant_id());
    return error;
  };
  auto info = control::to_info(opened.region());
  if (!info) return give_back(info.error());
  info->memory_id = server().memory_id;
  transport::LaneKeys keys;
  auto extents = grant_keys_.fetch_extents(opened, answer->connection, deadline, keys);
  if (!extents) return give_back(extents.error());
  auto grant =
      channel_.endpoint()->attach(std::move(*extents), std::move(answer->descriptors), rights);
  if (grant) grant = grant_keys_.with_tokens(std::move(*grant), keys);
  if (!grant) return give_back(grant.error());
  return OpenedGrant{.info = std::move(*info),
                     .grant_id = opened.grant_id(),
                     .grant = std::move(*grant),
                     .connection = answer->connection};
}

}  // namespace remora::detail
