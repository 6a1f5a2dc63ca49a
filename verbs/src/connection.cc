#include <cerrno>

#include <remora/verbs/connection.h>

#include "connection_state.h"

namespace remora::verbs {

std::string_view to_string(ConnectionEvent::Kind kind) noexcept {
  using Kind = ConnectionEvent::Kind;
  switch (kind) {
    case Kind::kEstablished: return "established";
    case Kind::kRejected: return "rejected";
    case Kind::kUnreachable: return "unreachable";
    case Kind::kConnectError: return "connect error";
    case Kind::kDisconnected: return "disconnected";
    case Kind::kDeviceRemoved: return "device removed";
    case Kind::kAddressChanged: return "address changed";
    case Kind::kTimeWaitExit: return "time-wait exit";
    case Kind::kOther: break;
  }
  return "other";
}

std::ostream& operator<<(std::ostream& out, const ConnectionEvent& event) {
  return out << to_string(event.kind) << " (status " << event.status << ")";
}

Error ConnectionEvent::error(const Address& peer) const {
  const auto made = [&](Code code) {
    const Error error = Error{code, "rdma_connect"}.with_subject(peer.to_string());
    return status < 0 ? error.with_errno(-status) : error;
  };
  switch (kind) {
    case Kind::kRejected: return made(Code::kConnectionRefused);
    case Kind::kUnreachable:
      return made(status == -ETIMEDOUT ? Code::kTimedOut : Code::kUnreachable);
    case Kind::kConnectError: return made(Code::kProvider);
    case Kind::kDisconnected: return made(Code::kConnectionLost).with_reason(Reason::kPeerGone);
    case Kind::kDeviceRemoved: return made(Code::kConnectionLost);
    default: return made(Code::kInternal);
  }
}

Connection::Connection(std::unique_ptr<detail::ConnectionState> state) noexcept
    : state_{std::move(state)} {}
Connection::Connection(Connection&&) noexcept = default;
Connection& Connection::operator=(Connection&&) noexcept = default;
Connection::~Connection() = default;

int Connection::event_fd() const noexcept { return state_->event_fd(); }
Result<std::optional<ConnectionEvent>> Connection::next_event() { return state_->next_event(); }
Result<ConnectionEvent> Connection::wait_event(Deadline deadline) {
  return state_->wait_event(deadline);
}
Status Connection::wait_established(Deadline deadline) {
  return state_->wait_established(deadline);
}
bool Connection::established() const noexcept { return state_->established; }
const std::optional<ConnectionEvent>& Connection::failure() const noexcept {
  return state_->failure;
}
QueuePair<Rc>& Connection::queue_pair() noexcept { return *state_->pair; }
const QueuePair<Rc>& Connection::queue_pair() const noexcept { return *state_->pair; }
const Device& Connection::device() const noexcept { return state_->device; }
std::uint8_t Connection::port() const noexcept { return state_->id->port_num; }
Address Connection::local_address() const noexcept { return state_->local_address(); }
Address Connection::peer_address() const noexcept { return state_->peer_address(); }
std::uint8_t Connection::initiator_depth() const noexcept { return state_->initiator_depth; }
std::uint8_t Connection::responder_depth() const noexcept { return state_->responder_depth; }
Status Connection::disconnect() { return state_->disconnect(); }
rdma_cm_id* Connection::raw() const noexcept { return state_->id.get(); }

}  // namespace remora::verbs
