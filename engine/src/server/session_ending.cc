/// What a client is told when the server ends its session for a cause that it could not know.

#include <chrono>
#include <limits>
#include <optional>
#include <thread>

#include "base/log.h"
#include "server/server_core.h"
#include "server/server_session.h"

namespace remora::detail {

using SessionEnd = ServerMetrics::SessionEnd;

namespace {

/// How long a last word waits for another thread that sends to the same client.
constexpr std::chrono::milliseconds kSendingTime{10};
constexpr std::chrono::microseconds kSendingPause{50};

struct EndingCause {
  Code code;
  Reason reason;
  const char* subject;
};

/// Nothing where the client knows, has gone, or was never let in.
std::optional<EndingCause> ending_cause(SessionEnd why) noexcept {
  switch (why) {
    case SessionEnd::kProtocol:
      return EndingCause{Code::kProtocol, Reason::kNone,
                         "what came is not the protocol, or more than may be unanswered"};
    case SessionEnd::kUnknown:
      return EndingCause{Code::kConnectionRefused, Reason::kAuthentication,
                         "no longer one of the server's clients"};
    case SessionEnd::kStopped:
      return EndingCause{Code::kConnectionLost, Reason::kDraining, "the server stops"};
    // It may come back to this one. Not kLapsed, which says that it may not.
    case SessionEnd::kLapsed:
      return EndingCause{Code::kConnectionLost, Reason::kSilent, "limits.session_lease"};
    case SessionEnd::kLeft:
    case SessionEnd::kLost:
    case SessionEnd::kRefused:
    case SessionEnd::kNoHello:
    case SessionEnd::kKeyKept:
    case SessionEnd::kCount: break;
  }
  return std::nullopt;
}

}  // namespace

bool ServerSession::say_why(SessionEnd why) noexcept {
  const auto cause = ending_cause(why);
  if (!cause || !handshake_complete() || version() < 2) return false;
  control::Envelope envelope;
  envelope.set_magic(control::kMagic);
  // The last of all: those that are acknowledged are counted from 1.
  constexpr auto kLast = std::numeric_limits<std::uint64_t>::max();
  envelope.set_id(kLast);
  control::Event& event = *envelope.mutable_event();
  event.set_id(kLast);
  control::Event::Ending& ending = *event.mutable_ending();
  ending.set_code(static_cast<std::uint32_t>(cause->code));
  ending.set_reason(static_cast<std::uint32_t>(cause->reason));
  ending.set_subject(cause->subject);
  auto bytes = control::encode(envelope);
  if (!bytes) return false;
  std::unique_lock lock{send_mutex_, std::try_to_lock};
  // Another thread is sending, which as a rule takes microseconds: the client may have its answer
  // already. Only a server that stops, and has no more to do, waits for longer.
  for (const Deadline until = Clock::now() + kSendingTime;
       !lock.owns_lock() && Clock::now() < until && !lock.try_lock();)
    std::this_thread::sleep_for(kSendingPause);
  if (!lock.owns_lock() && why != SessionEnd::kStopped) return false;
  if (!lock.owns_lock()) lock.lock();
  const Status sent = endpoint_->send({.bytes = std::move(*bytes), .descriptors = {}});
  if (!sent) log::debug("session {:x}: {}", id(), sent.error().message());
  // Whoever has lapsed may well be gone: it is not waited for.
  return sent && why != SessionEnd::kLapsed;
}

void ServerSession::await_last_word(Deadline until) noexcept {
  const std::unique_lock lock{send_mutex_, std::try_to_lock};
  if (lock.owns_lock()) endpoint_->flush(until);
}

}  // namespace remora::detail
