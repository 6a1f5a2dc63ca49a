#include "server/server_session.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <remora/assert.h>

#include "base/log.h"
#include "server/server_core.h"
#include "server/warm/kept_process.h"
#include "server/warm/warm_memory.h"
#include "transport/delayed_destruction.h"
#include "transport/device_session.h"
#include "transport/mapping_client.h"

namespace remora::detail {

using control::Request;

namespace {

/// A hello has no room for the ids of very many grants, and leaves the highest out. New ids of a
/// restored session start this far above the listed ones.
constexpr std::uint64_t kUnlistedIds = std::uint64_t{1} << 20U;

/// `endpoint` has been shut down. Blocks until its lanes are destroyed.
void destroy_ended_lanes(transport::ServerEndpoint& endpoint) noexcept {
  transport::DelayedDestruction* const lanes = endpoint.delayed_destruction();
  if (lanes == nullptr) return;
  lanes->destroy_lanes();
  lanes->await_destroyed();
}

}  // namespace

ServerSession::ServerSession(ServerCore& server, std::uint64_t id, std::uint64_t lane_secret,
                             std::unique_ptr<transport::ServerEndpoint> endpoint)
    : server_{server},
      id_{id},
      lane_secret_{lane_secret},
      connection_{std::move(endpoint), server.client_wait_budget()},
      handshake_{server, *this},
      events_{server, *this},
      grants_{server, *this},
      notices_{server, id, connection_, grants_.names()},
      region_requests_{server, *this},
      admin_requests_{server, *this, region_requests_},
      throttle_{server.limits().requests_per_second},
      resumptions_{TokenBucket::a_minute(server.limits().resumes_per_minute)} {
  server_.session_table().count_made();
  server_.metrics().session_began(this->endpoint().kind());
}

ServerSession::~ServerSession() {
  endpoint().shutdown();  // called first: see release()
  release();
  server_.metrics().session_gone(endpoint().kind());
  server_.session_table().count_destroyed();
}

void ServerSession::detach() noexcept {
  REMORA_ASSERT(handshake_complete(), "only a session whose client was admitted is kept for it");
  const bool before = detached_.exchange(true);
  REMORA_ASSERT(!before, "a session is detached once");
}

void ServerSession::settle_detached() {
  REMORA_ASSERT(detached(), "only a session without a client is settled");
  if (auto* const lanes = endpoint().delayed_destruction()) lanes->destroy_lanes();
  // The session is kept, and gets keys of the device when the device has returned.
  transport::DeviceSession* const device = endpoint().device_session();
  if (device != nullptr && device->device_gone()) {
    grants_.leave_device();
    device->leave_device();
  }
  if (!released_) server_.revocations().stop_waiting_for_detached();
}

void ServerSession::release() noexcept {
  released_ = true;
  if (transport::DelayedDestruction* const lanes = endpoint().delayed_destruction()) {
    lanes->destroy_lanes();
    // Another session of the client may keep the registrations of this one, so only the end of its
    // lanes ends its access: its connection was shut down before.
    if (lanes->lanes_may_serve()) lanes->await_destroyed();
  }
  // Before anything is released: from here on other clients may see that the session is over.
  if (WarmMemory* const warm = server_.warm()) warm->forget(id());
  events_.clear();
  throttle_.clear();
  grants_.close_all();
  region_requests_.remove_own();
}

bool ServerSession::send_ending_cause(ServerMetrics::SessionEnd why) noexcept {
  using SessionEnd = ServerMetrics::SessionEnd;
  const auto cause = ending_cause(why);
  if (!cause || !handshake_complete() || handshake_.version() < 2) return false;
  // Only a server that stops has time to wait for another thread that sends to this client.
  using Wait = SessionConnection::Wait;
  const Wait wait = why == SessionEnd::kStopped ? Wait::kPatient : Wait::kShort;
  // Does not wait for a client whose lease has lapsed, since it is probably gone.
  return connection_.send_ending(id(), *cause, wait) && why != SessionEnd::kLapsed;
}

bool ServerSession::begin_revoking(std::uint64_t grant_id, Reason reason) {
  // A detached session has no operation in flight, and no client to ask.
  if (over() || handshake_.version() < 2) return false;
  const auto marked = grants_.mark_revoking(grant_id, reason);
  if (!marked) return false;
  // If the grant was marked before, the client has the event and has not acknowledged it yet.
  if (*marked) send_event(events_.revoking(grant_id, reason));
  return true;
}

void ServerSession::send_event(control::Event event) {
  if (released_ || handshake_.version() < 2) return;
  events_.send(std::move(event));
}

void ServerSession::lock_out(const RegionEntry& region, const Error& why) {
  log::warn({"grant.not_taken_back", "session:x peer region reason"},
            "session {:x} ({}): its access to {} cannot be taken back ({}): the session ends", id(),
            endpoint().peer(), region.name(), why.message());
  // The client must not resume this session: the registration whose key was not invalidated belongs
  // to the old connection, and is useless to a new one.
  handshake_.forbid_resumption();
  // First, so that a thread that finds the lanes broken does not end the session with another
  // cause.
  if (!std::exchange(locked_out_, true) && !released_)
    server_.enqueue([self = shared_from_this()] { self->server_.ender().end_locked_out(self); });
  endpoint().shutdown();
  destroy_ended_lanes(endpoint());
  // These sessions end as sessions that have lost their connection, and cannot be resumed either.
  if (auto* const device = endpoint().device_session()) device->end_sharing_sessions();
}

bool ServerSession::may_be_resumed(const control::Resume& resume,
                                   const ServerSession& other) const noexcept {
  // A client that has proven its name need not send the secret, which other hosts could read.
  return handshake_.resumable() && resume.session_id() == id() &&
         handshake_.same_client(other.handshake_) &&
         (handshake_.proven() || resume.lane_secret() == lane_secret_);
}

Result<Resumption> ServerSession::resume() {
  const auto& wanted = handshake_.wanted();
  if (!wanted || handshake_.version() < 2) return Resumption::kNone;
  const auto claimed = server_.ender().claim(*wanted, *this);
  if (!claimed) return claimed.error();
  const std::shared_ptr<ServerSession>& before = *claimed;
  if (before == nullptr) return restore(*wanted);
  if (auto taken_over = take_over(*before); !taken_over) {
    log::warn({"session.not_resumed", "session:x reason"}, "session {:x}: {}; it ends",
              before->id(), taken_over.error().message());
    before->release();
    return Resumption::kNone;
  }
  const std::uint64_t own = id();
  const std::uint64_t resumed = before->id();
  server_.revocations().move_grants(resumed, *this);
  server_.metrics().session_resumed();
  rename(resumed);
  before->id_.store(own);  // so that its late replies cannot end the resumed session
  reconcile_grants();
  if (locked_out_) return Error{Code::kConnectionLost, "resume"};
  return Resumption::kResumed;
}

void ServerSession::rename(std::uint64_t session_id) {
  server_.session_table().rename(id(), session_id);
  notices_.rename(session_id);
  id_.store(session_id);
}

/// Continues a session of the previous process, whose lanes ended with that process.
Result<Resumption> ServerSession::restore(const control::Resume& wanted) {
  if (wanted.memory_id() == 0 || wanted.memory_id() != server_.memory_id())
    return Resumption::kNone;
  // First, so that a refused session has taken nothing: its client tries again.
  if (auto admitted = server_.session_table().admit(*this); !admitted) return admitted.error();
  const auto claimed = server_.restored_sessions().claim(wanted, handshake_.client_name(),
                                                         handshake_.proven(), endpoint().kind());
  if (!claimed) return Resumption::kNone;
  rename(claimed->id);
  // A client that does not receive this answer resumes again with the secret that it knows.
  if (!handshake_.proven()) lane_secret_ = wanted.lane_secret();
  restored_ = true;
  if (const transport::MappingClient* const mapping = endpoint().mapping_client()) {
    returning_ = true;
    connection_.leave_pings_to_worker(true);
    server_.restored_sessions().await_return(*claimed, mapping->process_id(),
                                             Clock::now() + server_.limits().session_keep);
  }
  std::uint64_t named = 0;
  for (const std::uint64_t grant_id : wanted.grants()) named = std::max(named, grant_id);
  grants_.avoid(std::min(named, GrantNames::kMaxNamedId - kUnlistedIds) + kUnlistedIds);
  region_requests_.take_over_restored();
  server_.metrics().session_reattached();
  return Resumption::kRestored;
}

void ServerSession::note_for_next_process() {
  WarmMemory* const warm = server_.warm();
  if (warm == nullptr) return;
  const bool resumable =
      handshake_.resumable() && server_.limits().session_keep > std::chrono::nanoseconds{0};
  const transport::MappingClient* const mapping = endpoint().mapping_client();
  if (!resumable && mapping == nullptr) return;
  const std::uint64_t process = mapping == nullptr ? 0 : mapping->process_id();
  const std::uint64_t began = process_began(process);
  warm->note({.id = id(),
              .client_name = handshake_.client_name(),
              .proven = handshake_.proven(),
              .secret_digest = digest_of(lane_secret_),
              .transport = endpoint().kind(),
              .resumable = resumable,
              .process_id = began == 0 ? 0 : process,  // 0: it is not visible
              .process_began = began});
}

/// Ends the grants that are not in the client's Hello.
void ServerSession::reconcile_grants() {
  const auto& known = handshake_.wanted()->grants();
  const auto missing_grants = grants_.reconcile({known.begin(), known.end()});
  if (restored_) return;  // the client asks for each grant
  for (const GrantSet::Missing& missing : missing_grants)
    events_.queue(events_.revoking(missing.grant_id, missing.reason));
}

/// The client has asked for all grants that it had; its ping follows. It acknowledges the loss of
/// the grants that it has not got again when no thread of it uses them any more.
void ServerSession::ask_to_stop_use() {
  if (!returning_ || std::exchange(asked_to_stop_use_, true)) return;
  connection_.leave_pings_to_worker(false);
  const auto& known = handshake_.wanted()->grants();
  for (const GrantSet::Missing& missing : grants_.missing({known.begin(), known.end()}))
    events_.queue(events_.revoking(missing.grant_id, missing.reason));
  note_returned();
}

void ServerSession::note_returned() {
  if (!returning_ || !asked_to_stop_use_ || !events_.idle()) return;
  returning_ = false;
  server_.restored_sessions().returned(id());
}

/// `before` has lost its connection, and serves no requests any more.
Status ServerSession::take_over(ServerSession& before) {
  REMORA_ASSERT(!before.released_ && !handshake_complete(),
                "a new connection resumes a session that has not been released");
  before.endpoint().shutdown();
  destroy_ended_lanes(before.endpoint());
  // The client counts the notices of its old lanes as delivered, so they are taken before the
  // grants move to this session.
  before.notices_.deliver_rest();
  // The grants may be registered with other devices, too, and stay valid there.
  transport::DeviceSession* const device = before.endpoint().device_session();
  if (device != nullptr && device->device_gone()) before.grants_.leave_device();
  if (auto status = endpoint().take_over(before.endpoint()); !status) return status;
  grants_.take_over(before.grants_);
  region_requests_.take_over(before.region_requests_);
  // The client may not have received the events of unfinished revocations: they are sent again.
  events_.clear();
  before.events_.clear();
  before.throttle_.clear();
  for (const GrantSet::Missing& revoked : grants_.being_revoked())
    events_.queue(events_.revoking(revoked.grant_id, revoked.reason));
  // A client that does not receive this answer resumes again with the secret that it knows.
  lane_secret_ = before.lane_secret_;
  resumptions_ = before.resumptions_;
  restored_ = before.restored_;
  returning_ = before.returning_;
  connection_.leave_pings_to_worker(returning_);
  before.released_ = true;  // drops its waiting requests
  return {};
}

RequestOutcome ServerSession::serve(const RequestThrottle::SharedMessage& message,
                                    Clock::time_point arrived) {
  if (released_) return RequestOutcome::kAnswered;  // the client has gone
  const auto envelope = control::decode(message->bytes);
  if (!envelope || !envelope->has_request() || !handshake_.expects(envelope->request()))
    return RequestOutcome::kProtocolViolation;
  if (exempt_from_throttle(envelope->request())) return serve_now(*envelope, *message, arrived);
  const bool first = throttle_.empty();
  throttle_.set_rate(server_.limits().requests_per_second);
  if (first && throttle_.admits(arrived)) return serve_now(*envelope, *message, arrived);
  throttle_.push({message, arrived});
  server_.metrics().request_delayed();
  if (first) {
    note_delayed(arrived);
    server_.delayed_sessions().serve_at(throttle_.next(), weak_from_this());
  }
  return RequestOutcome::kAnswered;
}

/// Whether the request is served now although other requests of the session are delayed.
bool ServerSession::exempt_from_throttle(const Request& request) noexcept {
  // Notices over shm are requests that have a limit of their own (kWouldBlock). A client
  // acknowledges an event once, and says goodbye once. After a resumption it has to ask for pages
  // of extents.
  if (request.has_notify() && maps_grants()) return true;
  if (request.has_event_ack() && events_.awaits(request.event_ack().event_id())) return true;
  if (request.has_extents() && grants_.take_owed_page()) return true;
  if (request.has_goodbye() && !std::exchange(said_goodbye_, true)) {
    serve_all_delayed();  // a goodbye is the last request of a client
    return true;
  }
  return false;
}

RequestOutcome ServerSession::serve_now(const control::Envelope& envelope,
                                        const transport::ControlMessage& message,
                                        Clock::time_point arrived) {
  const ServerRequest asked{envelope.id(), kind_of(envelope.request()), arrived};
  if (region_requests_.serve_in_turn(asked, envelope.request())) return RequestOutcome::kAnswered;
  if (envelope.request().has_end_session()) {
    admin_requests_.end_session(asked, envelope.request().end_session());
    return RequestOutcome::kAnswered;
  }
  return reply(asked, answer(envelope.request(), message.bytes));
}

void ServerSession::serve_delayed() {
  throttle_.set_rate(server_.limits().requests_per_second);
  while (!throttle_.empty() && !over() && throttle_.admits(Clock::now())) {
    const RequestOutcome outcome = serve_first_delayed();
    if (outcome == RequestOutcome::kAnswered) continue;
    serve_all_delayed();
    return server_.ender().apply_outcome(*this, outcome);
  }
  if (over()) throttle_.clear();
  if (!throttle_.empty()) server_.delayed_sessions().serve_at(throttle_.next(), weak_from_this());
}

void ServerSession::serve_all_delayed() {
  // It does not matter whether the client receives these replies.
  while (!throttle_.empty() && !over()) (void)serve_first_delayed();
}

RequestOutcome ServerSession::serve_first_delayed() {
  const RequestThrottle::Delayed first = throttle_.pop();
  const auto envelope = control::decode(first.message->bytes);  // serve() has decoded it already
  return envelope ? serve_now(*envelope, *first.message, first.arrived)
                  : RequestOutcome::kProtocolViolation;
}

void ServerSession::note_delayed(Clock::time_point now) {
  if (!throttle_.may_log(now) || !server_.may_log_delayed(now)) return;
  log::info({"session.throttled", "session:x peer limit"},
            "session {:x} ({}): more requests than limits.requests_per_second ({}): they wait",
            id(), endpoint().peer(), server_.limits().requests_per_second);
}

void ServerSession::reply_later(const ServerRequest& asked, Result<ServerReply> answered) {
  server_.ender().apply_outcome(*this, reply(asked, std::move(answered)));
}

RequestOutcome ServerSession::reply(const ServerRequest& asked, Result<ServerReply> answered) {
  control::Envelope reply;
  reply.set_magic(control::kMagic);
  reply.set_id(asked.id);
  std::vector<UniqueFd> descriptors;
  if (answered) {
    *reply.mutable_reply() = std::move(answered->reply);
    descriptors = std::move(answered->descriptors);
  } else {
    *reply.mutable_reply()->mutable_failure() = control::to_failure(answered.error());
    if (handshake_complete()) server_.note_limit(answered.error(), *this);
  }
  server_.metrics().request(asked.kind, answered.ok(), Clock::now() - asked.arrived);
  auto bytes = control::encode(reply);
  if (!bytes) {
    log::warn({"session.reply_not_sent", "peer reason"}, "session {}: {}", endpoint().peer(),
              bytes.error().message());
    return RequestOutcome::kReplyNotSent;
  }
  const bool challenged = handshake_.challenged();
  if (challenged) handshake_.challenge_sent(*bytes);
  connection_.record_activity();  // the client's lease counts from the reply
  // Counted before the reply is sent: a client that sends its next request at once must not exceed
  // its limit.
  connection_.count_answered();
  const Status sent =
      connection_.send({.bytes = std::move(*bytes), .descriptors = std::move(descriptors)});
  // A client whose hello was refused gets the reason, and its session ends.
  const bool refused = !handshake_complete() && !challenged;
  if (sent && refused) connection_.flush_refusal();
  if (refused) return RequestOutcome::kRefused;
  // A client that has disconnected may have sent close requests or a goodbye before. The worker
  // serves these first; after them the control thread finds the end of the connection.
  if (!sent && sent.error().code() == Code::kConnectionLost) return RequestOutcome::kAnswered;
  if (!sent) return RequestOutcome::kReplyNotSent;
  if (handshake_complete()) events_.send_next();  // events that a resuming client has missed, too
  return RequestOutcome::kAnswered;
}

Result<ServerReply> ServerSession::answer(const Request& request, Raw raw) {
  switch (request.body_case()) {
    case Request::kHello: return handshake_.hello(request.hello(), raw);
    case Request::kProve: return handshake_.prove(request.prove(), raw);
    case Request::kUsage: return region_requests_.usage();
    case Request::kClose: return grants_.close(request.close());
    case Request::kList: return region_requests_.list(request.list());
    case Request::kStat: return region_requests_.stat(request.stat());
    case Request::kRemove: return region_requests_.remove(request.remove());
    case Request::kNotify: return notify(request.notify());
    case Request::kPing: {
      ask_to_stop_use();
      ServerReply answer;
      answer.reply.mutable_ping();
      return answer;
    }
    case Request::kGoodbye: {
      handshake_.forbid_resumption();  // the client disconnects once it has the reply
      ServerReply answer;
      answer.reply.mutable_goodbye();
      return answer;
    }
    case Request::kGrantState: return grants_.state(request.grant_state());
    case Request::kEventAck: return acknowledge(request.event_ack());
    case Request::kSessions: return admin_requests_.sessions(request.sessions());
    case Request::kDrain: return admin_requests_.drain(request.drain());
    case Request::kEndSession:  // see serve_now()
    // RegionRequests serves these: see RegionRequests::serve_in_turn().
    case Request::kCreate:
    case Request::kOpen:
    case Request::kExtents:
    case Request::kFence:
    case Request::kResize:
    case Request::kReattach:
    case Request::BODY_NOT_SET: break;
  }
  return Error{Code::kProtocol, "request"};
}

Result<ServerReply> ServerSession::acknowledge(const control::EventAckRequest& request) {
  const auto event = events_.acknowledge(request.event_id());
  if (!event)
    return Error{Code::kInvalidArgument, "event"}.with_subject("none of this id is to be seen");
  if (event->grant_id != 0)
    end_grant(event->grant_id, event->reason, ServerMetrics::TakenBack::kAcknowledged);
  events_.send_next();
  note_returned();
  ServerReply answer;
  answer.reply.mutable_event_ack();
  return answer;
}

Result<ServerReply> ServerSession::notify(const control::NotifyRequest& request) {
  if (notices_.reserve(1) == 0) return Error{Code::kWouldBlock, "notify"};
  const Status delivered = notices_.deliver({.grant_id = request.grant_id(),
                                             .offset_bytes = request.offset(),
                                             .length_bytes = request.length_bytes(),
                                             .tag = request.tag()});
  if (!delivered) return delivered.error();
  ServerReply answer;
  answer.reply.mutable_notify();
  return answer;
}

}  // namespace remora::detail
