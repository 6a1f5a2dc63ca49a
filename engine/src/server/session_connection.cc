#include "server/session_connection.h"

#include <limits>
#include <thread>
#include <utility>

#include <remora/assert.h>

#include "base/log.h"

namespace remora::detail {

namespace {

constexpr std::chrono::milliseconds kRefusalFlushTimeout{200};
constexpr std::chrono::milliseconds kSendRoomTimeout{20};
/// The time that the last event waits for a thread that is sending to the same client.
constexpr std::chrono::milliseconds kSendLockTimeout{10};
constexpr std::chrono::microseconds kSendLockPause{50};

}  // namespace

SessionConnection::SessionConnection(std::unique_ptr<transport::ServerEndpoint> endpoint,
                                     ClientWaitBudget& client_wait_budget)
    : endpoint_{std::move(endpoint)},
      sender_{endpoint_.get()},
      client_wait_budget_{client_wait_budget} {}

bool SessionConnection::admit_request() noexcept {
  // One more than the limit of requests: the acknowledgement of an event is not counted in it.
  return unanswered_.fetch_add(1) <= transport::kMaxControlRequests;
}

void SessionConnection::count_answered() noexcept {
  const std::size_t before = unanswered_.fetch_sub(1);
  REMORA_ASSERT(before > 0, "each request of a client is answered once");
}

bool SessionConnection::answer_ping(std::span<const std::byte> message) noexcept {
  constexpr std::size_t kMaxPingBytes = 32;
  if (message.size() > kMaxPingBytes || worker_answers_pings_.load()) return false;
  const auto envelope = control::decode(message);
  if (!envelope || !envelope->request().has_ping()) return false;
  // If the client pings too often, or the worker is sending to it, the worker answers the ping.
  if (!send_mutex_.try_lock()) return false;
  const MutexLock lock{send_mutex_, std::adopt_lock};
  if (!ping_bucket_.admits(Clock::now())) return false;
  control::Envelope reply;
  reply.set_magic(control::kMagic);
  reply.set_id(envelope->id());
  reply.mutable_reply()->mutable_ping();
  auto bytes = control::encode(reply);
  // A failure is ignored here: a client that does not read fails at its requests, or by its
  // silence.
  if (bytes) (void)sender_->send({.bytes = std::move(*bytes), .descriptors = {}});
  return true;
}

Status SessionConnection::send(const control::Envelope& envelope) {
  auto bytes = control::encode(envelope);
  if (!bytes) return bytes.error();
  return send({.bytes = std::move(*bytes), .descriptors = {}});
}

Status SessionConnection::send(transport::ControlMessage message) {
  const MutexLock lock{send_mutex_};
  const Clock::time_point began = Clock::now();
  if (!sender_->has_room(began) && client_wait_budget_.allows(began)) {
    (void)sender_->has_room(began + kSendRoomTimeout);
    client_wait_budget_.spend(began, Clock::now());
  }
  return sender_->send(std::move(message));
}

void SessionConnection::flush_refusal() noexcept {
  const Clock::time_point began = Clock::now();
  if (!client_wait_budget_.allows(began)) return;
  const MutexLock lock{send_mutex_};  // the control thread answers pings
  sender_->flush(began + kRefusalFlushTimeout);
  client_wait_budget_.spend(began, Clock::now());
}

/// clang's analysis does not understand a lock that a loop tries to take.
bool SessionConnection::lock_to_send(Wait wait) noexcept REMORA_NO_THREAD_SAFETY_ANALYSIS {
  // Another thread is sending, which usually takes microseconds.
  const Deadline until = Clock::now() + kSendLockTimeout;
  while (!send_mutex_.try_lock()) {
    if (Clock::now() >= until) {
      if (wait == Wait::kShort) return false;
      send_mutex_.lock();
      return true;
    }
    std::this_thread::sleep_for(kSendLockPause);
  }
  return true;
}

bool SessionConnection::send_ending(std::uint64_t session_id, const EndingCause& cause,
                                    Wait wait) noexcept {
  control::Envelope envelope;
  envelope.set_magic(control::kMagic);
  // The largest id: the ids of events that the client acknowledges count from 1 upwards.
  constexpr auto kLast = std::numeric_limits<std::uint64_t>::max();
  envelope.set_id(kLast);
  control::Event& event = *envelope.mutable_event();
  event.set_id(kLast);
  control::Event::Ending& ending = *event.mutable_ending();
  ending.set_code(static_cast<std::uint32_t>(cause.code));
  ending.set_reason(static_cast<std::uint32_t>(cause.reason));
  ending.set_subject(cause.subject);
  auto bytes = control::encode(envelope);
  if (!bytes) return false;
  if (!lock_to_send(wait)) return false;
  const MutexLock lock{send_mutex_, std::adopt_lock};
  const Status sent = sender_->send({.bytes = std::move(*bytes), .descriptors = {}});
  if (!sent) log::debug("session {:x}: {}", session_id, sent.error().message());
  return sent.ok();
}

void SessionConnection::await_ending_sent(Deadline deadline) noexcept {
  if (!send_mutex_.try_lock()) return;
  const MutexLock lock{send_mutex_, std::adopt_lock};
  sender_->flush(deadline);
}

}  // namespace remora::detail
