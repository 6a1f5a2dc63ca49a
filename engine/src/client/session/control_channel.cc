#include "client/session/control_channel.h"

#include <deque>
#include <exception>
#include <future>
#include <utility>

#include <remora/assert.h>

#include "base/log.h"
#include "client/session/session_core.h"

namespace remora::detail {

using control::Request;
using transport::ClientEndpoint;
using transport::ControlMessage;

namespace {

constexpr std::chrono::milliseconds kLastWordTime{50};

}  // namespace

/// A request, from when it is sent until its answer is taken. Its waiter stays where it is.
struct ControlChannel::Call {
  Call(Operation what, Deadline until) noexcept : operation{what}, deadline{until} {}
  const Operation operation;
  const Deadline deadline;
  Waiter waiter{};
  std::uint64_t id = 0;  ///< 0: there was no room for it
  Clock::time_point asked_at{};
  Status sent{};
  int expected = 0;  ///< the kind of the reply
  bool is_hello = false;
};

ControlChannel::ControlChannel(SessionCore& session, EventLoop& loop,
                               std::shared_ptr<ClientEndpoint> endpoint) noexcept
    : session_{session},
      loop_{loop},
      heard_at_{Clock::now().time_since_epoch().count()},
      endpoint_{std::move(endpoint)} {}

ControlChannel::~ControlChannel() {
  const MutexLock lock{mutex_};
  REMORA_ASSERT(watch_ == 0, "a channel that ends is not watched any more");
  for (const auto& [id, waiter] : waiters_)
    REMORA_ASSERT(waiter == nullptr, "no call waits on a channel that ends");
}

ControlChannel::Connection ControlChannel::connection() const {
  const MutexLock lock{mutex_};
  return {endpoint_, number_};
}

Status ControlChannel::watch(const Connection& connection) {
  auto watch = loop_.watch(connection.endpoint->event_fd(),
                           [weak = session_.weak_from_this(), this, connection] {
                             if (const auto alive = weak.lock())
                               read(*connection.endpoint, connection.number);
                           });
  if (!watch) return watch.error();
  const MutexLock lock{mutex_};
  // The channel may have ended before watch_ was set.
  if (endpoint_ != connection.endpoint || state_ == SessionState::kEnded || read_to_end_.load()) {
    loop_.drop(*watch);
  } else {
    if (watch_ != 0) loop_.drop(watch_);  // of the connection before
    watch_ = *watch;
  }
  return {};
}

void ControlChannel::unwatch() {
  const MutexLock lock{mutex_};
  if (watch_ != 0) loop_.drop(std::exchange(watch_, 0));
}

void ControlChannel::await_last_messages() noexcept {
  if (!session_.connected() || loop_.is_loop_thread()) return;
  try {
    const auto heard = std::make_shared<std::promise<void>>();
    auto passed = heard->get_future();
    loop_.run_soon([weak = session_.weak_from_this(), this, connection = connection(), heard] {
      if (const auto alive = weak.lock()) read(*connection.endpoint, connection.number);
      heard->set_value();
    });
    (void)passed.wait_for(kLastWordTime);
  } catch (
      const std::exception& error) {  // Out of memory: the caller does not learn the exact reason.
    log::debug("session with {}: {}", session_.server_address(), error.what());
  }
}

std::uint64_t ControlChannel::begin_joining(std::shared_ptr<ClientEndpoint> endpoint) {
  const MutexLock lock{mutex_};
  REMORA_ASSERT(may_follow(state_, SessionState::kJoining),
                "only an interrupted session joins its server again");
  state_ = SessionState::kJoining;
  joining_ = std::this_thread::get_id();
  endpoint_ = std::move(endpoint);
  read_to_end_.store(false);
  return ++number_;
}

void ControlChannel::open() {
  const MutexLock lock{mutex_};
  REMORA_ASSERT(may_follow(state_, SessionState::kUp), "only a session that joins comes up");
  state_ = SessionState::kUp;
}

void ControlChannel::wake_calls() {
  const MutexLock lock{mutex_};
  room_.notify_all();
}

void ControlChannel::end_waits() {
  for (auto& [id, waiter] : waiters_)
    if (waiter != nullptr) waiter->ready.notify_all();
  room_.notify_all();
}

std::shared_ptr<ClientEndpoint> ControlChannel::abandon_connection(SessionState next) {
  const MutexLock lock{mutex_};
  REMORA_ASSERT(may_follow(state_, next), "only a connection that is there is left");
  state_ = next;
  end_waits();
  std::erase_if(waiters_, [](const auto& entry) { return entry.second == nullptr; });
  return endpoint_;
}

void ControlChannel::close() {
  const MutexLock lock{mutex_};
  // The reconnector may have watched a connection meanwhile. After this it drops its own watch.
  if (watch_ != 0) loop_.drop(std::exchange(watch_, 0));
  state_ = SessionState::kEnded;
  end_waits();
}

Error ControlChannel::lost(Operation operation) const noexcept {
  return Error{Code::kConnectionLost, operation}.with_reason(session_.lost_reason());
}

Result<std::vector<std::byte>> ControlChannel::encode(Request request, std::uint64_t id) {
  control::Envelope envelope;
  envelope.set_magic(control::kMagic);
  envelope.set_id(id);
  *envelope.mutable_request() = std::move(request);
  return control::encode(envelope);
}

Status ControlChannel::send(ClientEndpoint& endpoint, Request request, std::uint64_t id,
                            Deadline deadline, std::vector<std::byte>* raw) {
  auto bytes = encode(std::move(request), id);
  if (!bytes) return bytes.error();
  if (raw != nullptr) *raw = *bytes;
  const MutexLock lock{send_mutex_};
  return endpoint.send({.bytes = std::move(*bytes), .descriptors = {}}, deadline);
}

/// Waits for room and reserves it; gives the call its number. Returns the endpoint for the request.
Result<std::shared_ptr<ClientEndpoint>> ControlChannel::enter(Waiter& waiter, std::uint64_t& id,
                                                              Operation operation,
                                                              Deadline deadline) {
  MutexLock lock{mutex_};
  // Close requests, for which no caller waits, are sent first, so that a region that the
  // application has released before this call is closed before it.
  const bool room = room_.wait_until(lock, deadline, [this] {
    mutex_.assert_held();
    return (waiters_.size() < transport::kMaxControlRequests &&
            (to_close_.empty() || state_ != SessionState::kUp)) ||
           !may_call();
  });
  if (!room)
    return Error{Code::kTimedOut, operation}.with_limit(transport::kMaxControlRequests + 1,
                                                        transport::kMaxControlRequests);
  if (!may_call()) return lost(operation);
  id = next_id_++;
  waiter.number = number_;
  const bool fresh = waiters_.emplace(id, &waiter).second;
  REMORA_ASSERT(fresh, "each request of a session has a number of its own");
  return endpoint_;
}

/// Waits for the answer, and frees the call's room.
Status ControlChannel::leave_call(Call& call) {
  MutexLock lock{mutex_};
  Waiter& waiter = call.waiter;
  const auto still_asked = [&] {
    mutex_.assert_held();
    return waiter.number == number_ && may_call();
  };
  if (call.sent)
    waiter.ready.wait_until(lock, call.deadline,
                            [&] { return waiter.answer.has_value() || !still_asked(); });
  // The server may still answer after the caller's deadline: until then the request counts.
  if (call.sent && !waiter.answer.has_value() && still_asked())
    waiters_[call.id] = nullptr;
  else
    waiters_.erase(call.id);
  room_.notify_one();
  // The error for a lost connection is the same, whether the request was sent or not.
  if (!call.sent && call.sent.error().code() == Code::kConnectionLost) return lost(call.operation);
  if (!call.sent) return call.sent.error();
  if (waiter.answer.has_value()) return {};
  if (!still_asked()) return lost(call.operation);
  return Error{Code::kTimedOut, call.operation}.with_reason(
      heard_at() < call.asked_at ? Reason::kSilent : Reason::kExpired);
}

void ControlChannel::begin_call(Call& call, Request request, std::vector<std::byte>* raw) {
  // A reply's field number is that of its request plus one, since field 1 is the failure.
  call.expected = static_cast<int>(request.body_case()) + 1;
  call.is_hello = request.has_hello();
  // The request goes to the connection on which its answer is expected, even if another connection
  // follows.
  const auto endpoint = enter(call.waiter, call.id, call.operation, call.deadline);
  if (!endpoint) {
    call.sent = endpoint.error();
    return;
  }
  call.asked_at = Clock::now();
  call.sent = send(**endpoint, std::move(request), call.id, call.deadline, raw);
  if (!call.sent && call.sent.error().code() == Code::kConnectionLost) {
    await_last_messages();
    session_.fail(Reason::kPeerGone, call.waiter.number);
  }
}

Result<ControlChannel::Answer> ControlChannel::end_call(Call& call) {
  if (call.id == 0) return call.sent.error();  // it has no room to leave
  if (auto status = leave_call(call); !status) return status.error();
  const control::Reply& reply = call.waiter.answer->reply;
  if (reply.has_failure()) return control::to_error(reply.failure(), call.operation);
  if (static_cast<int>(reply.body_case()) != call.expected &&
      !(call.is_hello && reply.has_challenge()))
    return Error{Code::kProtocol, call.operation}.with_subject("reply of another kind");
  return std::move(*call.waiter.answer);
}

Result<ControlChannel::Answer> ControlChannel::call(Request request, Operation operation,
                                                    Deadline deadline,
                                                    std::vector<std::byte>* raw) {
  Call call{operation, deadline};
  begin_call(call, std::move(request), raw);
  return end_call(call);
}

std::vector<Result<ControlChannel::Answer>> ControlChannel::call_together(
    std::vector<Request> requests, Operation operation, Deadline deadline) {
  REMORA_ASSERT(requests.size() <= kMaxTogether, "there is room for the requests of one caller");
  std::deque<Call> calls;
  std::vector<Result<Answer>> answers;
  answers.reserve(requests.size());
  for (std::size_t i = 0; i < requests.size(); ++i) calls.emplace_back(operation, deadline);
  for (std::size_t i = 0; i < requests.size(); ++i) begin_call(calls[i], std::move(requests[i]));
  for (Call& each : calls) answers.push_back(end_call(each));
  return answers;
}

ControlChannel::Sent ControlChannel::ask_unanswered(Request request, std::uint64_t number,
                                                    std::uint64_t* asked_id) noexcept {
  std::uint64_t id = 0;
  std::shared_ptr<ClientEndpoint> endpoint;
  {
    const MutexLock lock{mutex_};
    if (!reachable() || (number != 0 && number != number_)) return Sent::kGone;
    if (waiters_.size() > transport::kMaxControlRequests) return Sent::kLater;
    id = next_id_++;
    endpoint = endpoint_;
    waiters_.emplace(id, nullptr);
  }
  if (asked_id != nullptr) *asked_id = id;
  if (send(*endpoint, std::move(request), id, Clock::now())) return Sent::kSent;
  const MutexLock lock{mutex_};
  waiters_.erase(id);
  room_.notify_one();
  return Sent::kLater;
}

void ControlChannel::close_grant(std::uint64_t grant_id) noexcept {
  {
    const MutexLock lock{mutex_};
    if (state_ == SessionState::kEnded) return;
    to_close_.push_back(grant_id);
  }
  send_closes();
}

/// Each answer makes room for the next close request; a session that resumes tells the server its
/// grants instead. Holds send_mutex_ from before a close request leaves the list until it is sent,
/// so that a call that finds the list empty is sent after it.
void ControlChannel::send_closes() noexcept {
  while (true) {
    std::uint64_t id = 0;
    std::uint64_t grant_id = 0;
    std::shared_ptr<ClientEndpoint> endpoint;
    const MutexLock sending{send_mutex_};
    {
      const MutexLock lock{mutex_};
      if (state_ != SessionState::kUp || to_close_.empty() ||
          waiters_.size() >= transport::kMaxControlRequests)
        return;
      grant_id = to_close_.back();
      to_close_.pop_back();
      if (to_close_.empty()) room_.notify_all();  // calls that wait for the close requests
      id = next_id_++;
      endpoint = endpoint_;
      waiters_.emplace(id, nullptr);
    }
    Request close;
    close.mutable_close()->set_grant_id(grant_id);
    auto bytes = encode(std::move(close), id);
    if (bytes && endpoint->send({.bytes = std::move(*bytes), .descriptors = {}}, Clock::now()))
      continue;
    const MutexLock lock{mutex_};
    waiters_.erase(id);
    room_.notify_one();
    to_close_.push_back(grant_id);
    return;
  }
}

void ControlChannel::forget_closes() {
  const MutexLock lock{mutex_};
  to_close_.clear();
}

void ControlChannel::flush(Deadline until) {
  const auto endpoint = this->endpoint();
  const MutexLock lock{send_mutex_};  // the reconnector may be sending
  endpoint->flush(until);
}

void ControlChannel::read(ClientEndpoint& endpoint, std::uint64_t number) noexcept {
  while (true) {
    auto message = endpoint.receive();
    if (!message) {
      log::debug("session: {}", message.error().message());
      return end_connection(number, message.error().code() == Code::kProtocol);
    }
    if (!message->has_value()) return;
    set_heard_at(Clock::now());
    deliver(std::move(**message), number);
  }
}

/// The connection has ended. All its messages have been read, also one with the reason.
void ControlChannel::end_connection(std::uint64_t number, bool wrongly) noexcept {
  EventLoop::Token watch = 0;
  {
    const MutexLock lock{mutex_};
    if (number != number_) return;  // another connection has followed
    watch = std::exchange(watch_, 0);
    read_to_end_.store(true, std::memory_order_release);
  }
  if (watch != 0) loop_.drop(watch);
  session_.lose_connection(Reason::kPeerGone,
                           wrongly ? ClientMetrics::kProtocol : ClientMetrics::kPeerGone,
                           LaneFault::kNone, number);
}

void ControlChannel::deliver(ControlMessage message, std::uint64_t number) {
  auto envelope = control::decode(message.bytes);
  // An event may follow the answer to a hello at once, while that answer is still being processed.
  if (envelope && envelope->has_event() && session_.version() != 1)
    return session_.events().take(envelope->event(), number);
  if (!envelope || !envelope->has_reply()) {
    log::warn({"session.wrong_reply"},
              "session: the server sent what is not a reply; ending the session");
    session_.lose_connection(Reason::kPeerGone, ClientMetrics::kProtocol, LaneFault::kNone, number);
    return;
  }
  std::uint64_t late_grant = 0;
  {
    const MutexLock lock{mutex_};
    if (number != number_) return;  // a message of an earlier connection
    const auto found = waiters_.find(envelope->id());
    if (found == waiters_.end()) return;
    if (found->second != nullptr) {
      found->second->answer = Answer{.reply = std::move(*envelope->mutable_reply()),
                                     .descriptors = std::move(message.descriptors),
                                     .raw = std::move(message.bytes),
                                     .connection = number};
      found->second->ready.notify_one();
      return;
    }
    // No caller waits, so a grant that was given too late is closed.
    waiters_.erase(found);
    room_.notify_one();
    if (envelope->reply().has_open()) late_grant = envelope->reply().open().grant_id();
    if (envelope->reply().has_fence()) late_grant = envelope->reply().fence().opened().grant_id();
    if (late_grant != 0) to_close_.push_back(late_grant);
  }
  send_closes();
}

}  // namespace remora::detail
