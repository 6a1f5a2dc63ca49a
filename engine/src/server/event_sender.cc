#include "server/event_sender.h"

#include <chrono>
#include <utility>

#include "base/log.h"
#include "server/server_core.h"
#include "server/server_session.h"

namespace remora::detail {

void EventSender::send(control::Event event) {
  queue(std::move(event));
  send_next();
}

void EventSender::queue(control::Event event) {
  // A client that acknowledges nothing must not make the queue grow with the number of drains.
  if (event.has_draining())
    std::erase_if(waiting_, [](const control::Event& each) { return each.has_draining(); });
  waiting_.push_back(std::move(event));
}

void EventSender::send_next() {
  if (in_flight_id_ != 0 || waiting_.empty()) return;
  const control::Event event = std::move(waiting_.front());
  waiting_.pop_front();
  in_flight_id_ = next_id_++;
  in_flight_ = {.grant_id = event.revoking().grant_id(),
                .reason = static_cast<Reason>(event.revoking().reason())};
  control::Envelope envelope;
  envelope.set_magic(control::kMagic);
  envelope.set_id(in_flight_id_);
  *envelope.mutable_event() = event;
  envelope.mutable_event()->set_id(in_flight_id_);
  const Status sent = session_.connection().send(envelope);
  if (sent) return;
  log::debug("session {:x}: {}", session_.id(), sent.error().message());
  // The client may have disconnected, as in ServerSession::reply().
  if (sent.error().code() == Code::kConnectionLost) return;
  server_.ender().apply_outcome(session_, RequestOutcome::kReplyNotSent);
}

std::optional<EventSender::Acknowledged> EventSender::acknowledge(std::uint64_t event_id) {
  if (!awaits(event_id)) return std::nullopt;
  in_flight_id_ = 0;
  return std::exchange(in_flight_, {});
}

void EventSender::drop_grant(std::uint64_t grant_id) {
  std::erase_if(waiting_, [&](const control::Event& event) {
    return event.has_revoking() && event.revoking().grant_id() == grant_id;
  });
}

control::Event EventSender::revoking(std::uint64_t grant_id, Reason reason) const {
  control::Event event;
  control::Event::Revoking& revoking = *event.mutable_revoking();
  revoking.set_grant_id(grant_id);
  revoking.set_reason(static_cast<std::uint32_t>(reason));
  revoking.set_grace_ms(static_cast<std::uint64_t>(
      std::chrono::ceil<std::chrono::milliseconds>(server_.limits().revoke_grace).count()));
  return event;
}

}  // namespace remora::detail
