/// Opening and connecting again and again until a server admits the client:
/// EngineOptions::connect_for.

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <string>
#include <utility>

#include "base/log.h"
#include "client/engine/engine_core.h"
#include "client/session/backoff.h"
#include "client/session/session_core.h"

namespace remora::detail {

namespace {

/// True for an error that may have its cause in a server that has not started yet, or is stopping.
bool may_pass(const Error& error) noexcept {
  if (error.reason() == Reason::kLocalShortage) return true;
  switch (error.code()) {
    // Where hosts are containers, a name exists only while its container runs.
    case Code::kNotFound: return error.operation() == "getaddrinfo";
    case Code::kConnectionRefused:
      return error.reason() != Reason::kAuthentication && error.reason() != Reason::kVersion;
    case Code::kUnreachable:
    case Code::kConnectionLost:
    case Code::kTimedOut: return true;
    default: return false;
  }
}

double seconds(Clock::duration time) noexcept {
  return std::chrono::duration<double>{time}.count();
}

}  // namespace

Result<std::shared_ptr<SessionCore>> EngineCore::connect(const Uri& uri,
                                                         const ControlLimits& limits) {
  return retry_until_admitted(uri, limits, [&](Attempt& attempt) {
    return connect_once(uri, attempt_deadline(limits), attempt);
  });
}

Result<Region> EngineCore::open_region(const Uri& uri, Rights rights, Opening opening,
                                       const ControlLimits& limits) {
  return retry_until_admitted(uri, limits, [&](Attempt& attempt) {
    return open_once(uri, rights, opening, attempt_deadline(limits), attempt);
  });
}

Result<Region> EngineCore::open_again(const Uri& uri, Rights rights, Opening opening,
                                      Deadline deadline) {
  Attempt attempt;
  return open_once(uri, rights, opening,
                   std::min(deadline, deadline_after(options().control_deadline)), attempt);
}

/// Calls `make` until it succeeds, fails with an error that will not pass, or time is up. The
/// attempt says whether the server has answered: an answer is final. The log has the first failure
/// and the end, however many attempts lie between.
template <typename Make>
auto EngineCore::retry_until_admitted(const Uri& uri, const ControlLimits& limits, const Make& make)
    -> decltype(make(std::declval<Attempt&>())) {
  Attempt attempt;
  const auto log_transports = [&] {
    if (!attempt.passed_over.empty())
      log::warn("{}: no transport fits: {}", uri.text(), attempt.passed_over);
  };
  if (options().connect_for <= options().connect_for.zero()) {
    auto made = make(attempt);
    if (!made) log_transports();
    return made;
  }
  const Clock::time_point began = Clock::now();
  const Deadline until = std::min(limits.until, deadline_after(options().connect_for));
  std::mutex mutex;
  std::condition_variable_any given_up;
  Backoff backoff;
  for (std::size_t count = 1;; ++count) {
    auto made = make(attempt);
    const Clock::time_point now = Clock::now();
    if (made) {
      if (count > 1)
        log::info("{}: let in at attempt {}, after {:.1f} s", uri.text(), count,
                  seconds(now - began));
      return made;
    }
    const std::string why =
        attempt.passed_over.empty() ? made.error().message() : attempt.passed_over;
    const Clock::duration left = until - now;
    if (attempt.answered || !may_pass(made.error()) || left <= left.zero() ||
        limits.stop.stop_requested()) {
      if (attempt.answered && count == 1)
        log_transports();
      else
        log::warn("{}: not let in: {} (attempt {}, after {:.1f} s)", uri.text(), why, count,
                  seconds(now - began));
      return made;
    }
    if (count == 1)
      log::warn("{}: not let in yet: {}; trying for {:.1f} s more (connect_for)", uri.text(), why,
                seconds(left));
    else
      log::debug("{}: attempt {}: {}", uri.text(), count, why);
    std::unique_lock lock{mutex};
    (void)given_up.wait_for(lock, limits.stop, std::min<Clock::duration>(backoff.next(), left),
                            [] { return false; });
  }
}

}  // namespace remora::detail
