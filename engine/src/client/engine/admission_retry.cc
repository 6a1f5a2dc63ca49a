#include "client/engine/admission_retry.h"

#include <algorithm>
#include <condition_variable>
#include <string>

#include <remora/mutex.h>

#include "base/clock.h"
#include "base/log.h"
#include "client/session/backoff.h"

namespace remora::detail {

namespace {

/// Whether the cause may be a server that starts, restarts or is drained.
bool may_pass(const Error& error) noexcept {
  if (error.reason() == Reason::kLocalShortage) return true;
  switch (error.code()) {
    // The name of a container can be resolved only while the container runs.
    case Code::kNotFound: return error.operation() == "getaddrinfo";
    case Code::kConnectionRefused:
      return error.reason() != Reason::kAuthentication && error.reason() != Reason::kVersion;
    case Code::kUnreachable:
    case Code::kConnectionLost:
    case Code::kTimedOut: return true;
    case Code::kBusy: return error.reason() == Reason::kDraining;  // until its end, or a restart
    default: return false;
  }
}

double seconds(Clock::duration time) noexcept {
  return std::chrono::duration<double>{time}.count();
}

}  // namespace

void AdmissionRetry::repeat(const Try& try_once) {
  Attempt attempt;
  const auto log_transports = [&] {
    if (!attempt.passed_over.empty())
      log::warn({"client.no_transport", "uri reason"}, "{}: no transport fits: {}", uri_.text(),
                attempt.passed_over);
  };
  if (connect_for_ <= connect_for_.zero()) {
    if (try_once(attempt) != nullptr) log_transports();
    return;
  }
  const Clock::time_point began = Clock::now();
  const Deadline until = std::min(limits_.until, deadline_after(connect_for_));
  Mutex mutex;  // for the wait alone: a stop request ends it
  std::condition_variable_any given_up;
  Backoff backoff;
  for (std::size_t count = 1;; ++count) {
    const Error* const failed = try_once(attempt);
    const Clock::time_point now = Clock::now();
    if (failed == nullptr) {
      if (count > 1)
        log::info({"client.admitted", "uri attempts seconds"},
                  "{}: let in at attempt {}, after {:.1f} s", uri_.text(), count,
                  seconds(now - began));
      return;
    }
    const std::string why = attempt.passed_over.empty() ? failed->message() : attempt.passed_over;
    const Clock::duration left = until - now;
    if (attempt.answered || !may_pass(*failed) || left <= left.zero() ||
        limits_.stop.stop_requested()) {
      if (attempt.answered && count == 1)
        log_transports();
      else
        log::warn({"client.not_admitted", "uri reason attempts seconds"},
                  "{}: not let in: {} (attempt {}, after {:.1f} s)", uri_.text(), why, count,
                  seconds(now - began));
      return;
    }
    if (count == 1)
      log::warn({"client.waits", "uri reason left_seconds"},
                "{}: not let in yet: {}; trying for {:.1f} s more (connect_for)", uri_.text(), why,
                seconds(left));
    else
      log::debug("{}: attempt {}: {}", uri_.text(), count, why);
    MutexLock lock{mutex};
    (void)given_up.wait_for(lock.native(), limits_.stop,
                            std::min<Clock::duration>(backoff.next(), left), [] { return false; });
  }
}

}  // namespace remora::detail
