#include "client/session/keep_alive.h"

#include <algorithm>
#include <utility>

#include "client/session/session_core.h"

namespace remora::detail {

namespace {

/// If two ticks are farther apart, this process was stopped, and the server may have sent messages
/// meanwhile.
constexpr std::chrono::seconds kOwnPause{2};

}  // namespace

void KeepAlive::tick(Clock::time_point now) noexcept {
  ControlChannel& channel = session_.channel();
  const std::uint64_t connection = channel.number();
  const std::chrono::milliseconds lease = session_.handshake().lease();
  if (!session_.connected() || session_.version() < 2 || lease <= lease.zero()) return;
  const bool was_stopped = ticked_at_ != Clock::time_point{} && now - ticked_at_ > kOwnPause;
  ticked_at_ = now;
  if (was_stopped) channel.set_heard_at(now);
  const Clock::time_point heard = channel.heard_at();
  if (now - heard > lease)
    return session_.lose_connection(Reason::kSilent, ClientMetrics::kPeerGone, LaneFault::kNone,
                                    connection);
  channel.send_closes();  // close requests for which there was no room before
  if (!was_stopped && now - std::max(heard, pinged_at_) < lease / 4) return;
  // One ping at a time: more pings would not make a busy server answer sooner.
  if (channel.is_unanswered(ping_id_)) return;
  control::Request ping;
  ping.mutable_ping();
  if (channel.ask_unanswered(std::move(ping), connection, &ping_id_) == ControlChannel::Sent::kSent)
    pinged_at_ = now;
}

}  // namespace remora::detail
