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
/// How long a last event waits for another thread that sends to the same client.
constexpr std::chrono::milliseconds kSendLockTimeout{10};
constexpr std::chrono::microseconds kSendLockPause{50};

}  // namespace

SessionConnection::SessionConnection(std::unique_ptr<transport::ServerEndpoint> endpoint,
                                     LingerBudget& linger)
    : endpoint_{std::move(endpoint)}, linger_{linger} {}

bool SessionConnection::admit_request() noexcept {
  // An acknowledgement of an event comes beside the requests.
  return unanswered_.fetch_add(1) <= transport::kControlRequestsMax;
}

void SessionConnection::count_answered() noexcept {
  const std::size_t before = unanswered_.fetch_sub(1);
  REMORA_ASSERT(before > 0, "each request of a client is answered once");
}

bool SessionConnection::answer_ping(std::span<const std::byte> message) noexcept {
  constexpr std::size_t kPingBytesMax = 32;
  if (message.size() > kPingBytesMax) return false;
  const auto envelope = control::decode(message);
  if (!envelope || !envelope->request().has_ping()) return false;
  // The worker answers a client that pings too often, or to which it sends just now.
  if (!send_mutex_.try_lock()) return false;
  const MutexLock lock{send_mutex_, std::adopt_lock};
  if (!ping_bucket_.admits(Clock::now())) return false;
  control::Envelope reply;
  reply.set_magic(control::kMagic);
  reply.set_id(envelope->id());
  reply.mutable_reply()->mutable_ping();
  auto bytes = control::encode(reply);
  // A client that does not read shows by its requests to the worker, or by its silence.
  if (bytes) (void)endpoint_->send({.bytes = std::move(*bytes), .descriptors = {}});
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
  if (!endpoint_->has_room(began) && linger_.allows(began)) {
    (void)endpoint_->has_room(began + kSendRoomTimeout);
    linger_.spend(began, Clock::now());
  }
  return endpoint_->send(std::move(message));
}

void SessionConnection::flush_refusal() noexcept {
  const Clock::time_point began = Clock::now();
  if (!linger_.allows(began)) return;
  const MutexLock lock{send_mutex_};  // the control thread answers pings
  endpoint_->flush(began + kRefusalFlushTimeout);
  linger_.spend(began, Clock::now());
}

/// clang does not follow a lock that a loop tries to take.
bool SessionConnection::lock_to_send(Wait wait) noexcept REMORA_NO_THREAD_SAFETY_ANALYSIS {
  // Another thread is sending, which as a rule takes microseconds: the client may have its answer
  // already.
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
  // The last of all: the events that are acknowledged are counted from 1.
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
  const Status sent = endpoint_->send({.bytes = std::move(*bytes), .descriptors = {}});
  if (!sent) log::debug("session {:x}: {}", session_id, sent.error().message());
  return sent.ok();
}

void SessionConnection::await_ending_sent(Deadline deadline) noexcept {
  if (!send_mutex_.try_lock()) return;
  const MutexLock lock{send_mutex_, std::adopt_lock};
  endpoint_->flush(deadline);
}

}  // namespace remora::detail
