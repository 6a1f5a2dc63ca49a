/// Of a session: how fast its requests are served (limits.requests_per_second). A client that asks
/// faster is slowed down: its requests wait here for the token bucket, as many as a client may have
/// unanswered, while the worker serves other sessions.

#include <utility>

#include "base/log.h"
#include "server/server_core.h"
#include "server/server_session.h"

namespace remora::detail {

using control::Request;

namespace {

RequestKind kind_of(const Request& request) noexcept {
  switch (request.body_case()) {
    case Request::kHello: return RequestKind::kHello;
    case Request::kCreate: return RequestKind::kCreate;
    case Request::kOpen: return RequestKind::kOpen;
    case Request::kExtents: return RequestKind::kExtents;
    case Request::kClose: return RequestKind::kClose;
    case Request::kList: return RequestKind::kList;
    case Request::kStat: return RequestKind::kStat;
    case Request::kRemove: return RequestKind::kRemove;
    case Request::kNotify: return RequestKind::kNotify;
    case Request::kProve: return RequestKind::kProve;
    case Request::kUsage: return RequestKind::kUsage;
    case Request::kFence: return RequestKind::kFence;
    case Request::kResize: return RequestKind::kResize;
    case Request::kGrantState: return RequestKind::kGrantState;
    case Request::kEventAck: return RequestKind::kEventAck;
    case Request::kGoodbye:
    case Request::kPing:
    case Request::BODY_NOT_SET: break;
  }
  return RequestKind::kPing;
}

/// From one line about a session's requests that wait to the next.
constexpr std::chrono::minutes kLinePause{1};

}  // namespace

/// Whether the request may be served now, whatever waits.
bool ServerSession::exempt_from_pace(const Request& request) noexcept {
  // Notices over shm come as requests and have a bound of their own: kWouldBlock. An event is
  // acknowledged once, a session left once. What a client that comes back has to ask for is no
  // fault of its.
  if (request.has_notify() && maps_grants()) return true;
  if (request.has_event_ack() && event_in_flight_ != 0 &&
      request.event_ack().event_id() == event_in_flight_)
    return true;
  if (request.has_extents() && owed_pages_ > 0) {
    --owed_pages_;
    return true;
  }
  if (request.has_goodbye() && !std::exchange(said_goodbye_, true)) {
    serve_all_delayed();  // the last word of a client comes last
    return true;
  }
  return false;
}

ServerSession::Served ServerSession::serve(const SharedMessage& message,
                                           Clock::time_point arrived) {
  if (released_) return Served::kAnswered;  // no client is left to hear it
  const auto envelope = control::decode(message->bytes);
  if (!envelope || !envelope->has_request() || !expects(envelope->request()))
    return Served::kNotTheProtocol;
  if (exempt_from_pace(envelope->request())) return serve_now(*envelope, *message, arrived);
  const bool first = delayed_.empty();
  if (first && pace_.admits(arrived)) return serve_now(*envelope, *message, arrived);
  delayed_.push_back({message, arrived});
  server_.metrics().request_delayed();
  if (first) {
    note_delayed(arrived);
    server_.delayed().serve_at(pace_.next(), weak_from_this());
  }
  return Served::kAnswered;
}

ServerSession::Served ServerSession::serve_now(const control::Envelope& envelope,
                                               const transport::ControlMessage& message,
                                               Clock::time_point arrived) {
  const Asked asked{envelope.id(), kind_of(envelope.request()), arrived};
  if (serve_in_turn(asked, envelope.request())) return Served::kAnswered;
  return reply(asked, answer(envelope.request(), message.bytes));
}

void ServerSession::serve_delayed() {
  while (!delayed_.empty() && !over() && pace_.admits(Clock::now())) {
    const Served served = serve_first_delayed();
    if (served == Served::kAnswered) continue;
    serve_all_delayed();
    return server_.after_serving(*this, served);
  }
  if (over()) delayed_.clear();
  if (!delayed_.empty()) server_.delayed().serve_at(pace_.next(), weak_from_this());
}

void ServerSession::serve_all_delayed() {
  // Whether the client hears the answers is of no matter any more.
  while (!delayed_.empty() && !over()) (void)serve_first_delayed();
}

ServerSession::Served ServerSession::serve_first_delayed() {
  const Delayed first = std::move(delayed_.front());
  delayed_.pop_front();
  const auto envelope = control::decode(first.message->bytes);  // as it could be before
  return envelope ? serve_now(*envelope, *first.message, first.arrived) : Served::kNotTheProtocol;
}

void ServerSession::note_delayed(Clock::time_point now) {
  if (delayed_line_at_ != Clock::time_point{} && now - delayed_line_at_ < kLinePause) return;
  delayed_line_at_ = now;
  if (!server_.may_log_delayed(now)) return;
  log::info("session {:x} ({}): more requests than limits.requests_per_second ({}): they wait",
            id(), endpoint_->peer(), server_.config().limits.requests_per_second);
}

}  // namespace remora::detail
