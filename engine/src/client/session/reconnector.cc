#include "client/session/reconnector.h"

#include <algorithm>
#include <utility>

#include <remora/assert.h>
#include <remora/start_thread.h>

#include "base/log.h"
#include "client/services/engine_services.h"
#include "client/session/backoff.h"
#include "client/session/session_core.h"
#include "transport/connection_rails.h"

namespace remora::detail {

using control::Request;

namespace {

/// The deadline of an attempt. While the server does not answer in time, each attempt has twice the
/// time of the one before: a server that many clients connect to at once would otherwise serve none
/// of them before its time is over. A detached thread lives longer than its session by at most
/// kMaxAttemptTime.
constexpr std::chrono::milliseconds kAttemptTime{2000};
constexpr std::chrono::milliseconds kMaxAttemptTime{8000};
/// Time for the server's answer to the hello, once connected: the server may have to answer many
/// other clients that reconnect. The end of the session ends the wait.
constexpr std::chrono::milliseconds kHelloTime{8000};
/// Minimum time to wait for the server's events about grants, even if the renewal of keys has used
/// up the attempt's time.
constexpr std::chrono::milliseconds kGrantEventsTime{500};

}  // namespace

Reconnector::Reconnector(SessionCore& session, const ServerConnector& connector)
    : session_{session},
      attempt_{std::make_shared<Attempt>(connector)},
      attempt_time_{kAttemptTime} {}

Reconnector::~Reconnector() {
  REMORA_ASSERT(!thread_.joinable(), "a session stops its reconnector before it goes");
}

Status Reconnector::begin() {
  {
    const MutexLock lock{mutex_};
    ++interruptions_;
    if (std::exchange(at_work_, true)) return {};
    session_.dispatcher().reserve();
  }
  if (thread_.joinable()) thread_.join();  // the thread has returned, or is about to
  auto thread = start_thread("remora-connect", [this] { run(); });
  if (thread) {
    thread_ = std::move(*thread);
    return {};
  }
  const MutexLock lock{mutex_};
  at_work_ = false;
  session_.dispatcher().release_unused();
  return thread.error();
}

void Reconnector::stop() noexcept {
  {
    const MutexLock lock{attempt_->mutex};
    attempt_->abandoned = true;
    // The detached thread ends when its attempt to connect has ended.
    if (attempt_->connecting) thread_.detach();
  }
  if (thread_.joinable()) thread_.join();
}

/// The function of the thread: connects again until the session is up or has ended.
void Reconnector::run() noexcept {
  (void)session_.engine().placement().bind_thread();
  own_thread_.store(std::this_thread::get_id());
  session_.dispatcher().reserve_for_this_thread();
  std::uint64_t interruption = 0;
  Deadline until{};
  Backoff backoff;
  while (true) {
    session_.dispatcher().dispatch();
    if (session_.connected() || session_.ended()) {
      if (end_work()) return;
      continue;
    }
    {
      // The time to reconnect begins again with each interruption.
      const MutexLock lock{mutex_};
      REMORA_ASSERT(interruption <= interruptions_, "interruptions are counted upwards");
      if (std::exchange(interruption, interruptions_) != interruptions_) {
        until = deadline_after(session_.engine().options().reconnect_for);
        backoff.begin_anew();
        attempt_time_ = kAttemptTime;
      }
    }
    if (Clock::now() >= until) {
      give_up();
    } else if (session_.sleep_unless_ended(
                   std::min<Clock::duration>(backoff.next(), until - Clock::now()))) {
      if (!reconnect_once(until)) return;
    }
  }
}

/// False: the session was interrupted again, or a handler is to be called.
bool Reconnector::end_work() noexcept {
  const MutexLock lock{mutex_};
  // From here on begin() starts another thread for the next interruption.
  if (!session_.connected() && !session_.ended()) return false;
  if (!session_.dispatcher().release()) return false;
  at_work_ = false;
  own_thread_.store({});
  return true;
}

void Reconnector::give_up() noexcept {
  // A shortage of this host is the better reason, since it explains why the session was not
  // resumed.
  const Reason why = attempt_failed_by_ == Reason::kLocalShortage
                         ? attempt_failed_by_
                         : session_.explain(session_.lost_reason());
  log::warn({"session.lost", "server reason"}, "session with {}: not reached again in time: {}",
            session_.server_address(), to_string(why));
  session_.end(why, ClientMetrics::kPeerGone);
}

/// Why an attempt to connect has failed, for operations that wait for the session.
Reason Reconnector::why_unreached(const Error& error) noexcept {
  if (error.reason() == Reason::kLocalShortage) return Reason::kLocalShortage;
  if (error.code() == Code::kConnectionRefused) return Reason::kPeerGone;
  return error.reason() == Reason::kSilent ? Reason::kSilent : Reason::kUnreachable;
}

void Reconnector::set_next_attempt(const Error& failed_by) noexcept {
  // A peer that is not reached is asked again soon: it answers at once when it is back.
  const bool slow =
      failed_by.code() == Code::kTimedOut && failed_by.reason() != Reason::kUnreachable;
  attempt_time_ = slow ? std::min(2 * attempt_time_, kMaxAttemptTime) : kAttemptTime;
}

/// Makes one attempt to connect and to resume the session. False: the session was destroyed
/// meanwhile, and the thread must not use it any more.
bool Reconnector::reconnect_once(Deadline until) noexcept {
  const Deadline deadline = std::max<Deadline>(
      Clock::now() + kAttemptTime, std::min<Deadline>(until, Clock::now() + attempt_time_));
  const std::shared_ptr<Attempt> attempt = attempt_;
  {
    const MutexLock lock{attempt->mutex};
    if (attempt->abandoned)
      return true;  // stop() joins this thread, and run() finds that the session has ended
    attempt->connecting = true;
  }
  auto endpoint = attempt->connector.connect(deadline);
  {
    const MutexLock lock{attempt->mutex};
    if (attempt->abandoned) return false;
    attempt->connecting = false;
  }
  attempt_failed_by_ = endpoint ? Reason::kNone : endpoint.error().reason();
  if (!endpoint) {
    set_next_attempt(endpoint.error());
    log::debug("session with {}: {}", session_.server_address(), endpoint.error().message());
    unreached_.store(why_unreached(endpoint.error()));
    return true;
  }
  const std::shared_ptr<transport::ClientEndpoint> joined = std::move(*endpoint);
  // The connection is over a device for which the session's local keys are not valid.
  if (joined->memory_domain() != session_.domain()) return true;
  if (auto* const domain = session_.memory_domain();
      domain != nullptr && joined->device() != session_.local_device())
    domain->show_counters(session_.engine().registry());
  const std::uint64_t connection = session_.begin_joining(joined);
  if (connection == 0) return true;
  Status status = session_.channel().watch({joined, connection});
  if (status) status = resume(deadline, until);
  if (status) return true;
  attempt_failed_by_ = status.error().reason();
  set_next_attempt(status.error());
  log::debug("session with {}: {}", session_.server_address(), status.error().message());
  // After a final error the session has ended, and this does nothing.
  session_.lose_connection(
      status.error().reason() != Reason::kNone ? status.error().reason() : Reason::kPeerGone,
      ClientMetrics::kPeerGone, LaneFault::kNone, connection);
  return true;
}

/// `deadline`: of the attempt, which may take longer while the server works on it, but not beyond
/// `until`.
Status Reconnector::resume(Deadline deadline, Deadline until) {
  const auto no_longer_than = [&](std::chrono::milliseconds time) {
    return std::max(deadline, std::min<Deadline>(until, Clock::now() + time));
  };
  if (auto status = session_.handshake().say_hello(no_longer_than(kHelloTime)); !status) {
    // With these reasons the server also refuses later attempts.
    const Reason reason = status.error().reason();
    const bool final = reason == Reason::kVersion || reason == Reason::kAuthentication ||
                       reason == Reason::kNewMemory || reason == Reason::kLapsed ||
                       reason == Reason::kTooOften;
    if (!final) return status;
    const auto endpoint = session_.channel().endpoint();
    transport::ConnectionRails* const rails = endpoint->rails();
    if (rails != nullptr && rails->leave_other_server())
      return status.error().with_reason(Reason::kPeerGone);
    session_.end(reason, ClientMetrics::kPeerGone);
    return status;
  }
  deadline = no_longer_than(attempt_time_);
  auto lanes = session_.lane_set().open_again(deadline);
  if (!lanes) return lanes.error();
  if (auto status = session_.grant_keys().reattach(); !status) return status;
  if (auto status = session_.grant_keys().renew(); !status) return status;
  if (const auto* const domain = session_.memory_domain())
    session_.engine().memory().renew_keys(*domain);
  await_grant_events(std::max(deadline, Clock::now() + kGrantEventsTime));
  if (!session_.resume(std::move(*lanes)))
    return Error{Code::kConnectionLost, "resume"}.with_reason(session_.lost_reason());
  return {};
}

/// Waits for the server's events about grants that it has revoked meanwhile, since an operation of
/// such a grant would break the new lanes. The server sends one event at a time.
void Reconnector::await_grant_events(Deadline deadline) noexcept {
  constexpr std::chrono::milliseconds kBetweenLooks{1};
  // The application may have operations of a grant in flight: this waits no longer for them.
  constexpr std::chrono::milliseconds kPatience{100};
  std::uint64_t events = 0;
  do {
    events = session_.events().count();
    Request ping;
    ping.mutable_ping();
    if (!session_.call(std::move(ping), "resume", deadline)) return;
    const Deadline until = std::min(deadline, Clock::now() + kPatience);
    while (!session_.revocations().idle() && Clock::now() < until &&
           session_.sleep_unless_ended(kBetweenLooks)) {
    }
  } while (events != session_.events().count() && Clock::now() < deadline);
}

}  // namespace remora::detail
