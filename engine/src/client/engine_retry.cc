/// Opening and connecting for as long as nobody lets the client in: EngineOptions::connect_for.

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "client/backoff.h"
#include "client/engine_core.h"
#include "support/log.h"

namespace remora::detail {

namespace {

/// What a server that is not there yet, or goes, may be the cause of.
bool may_pass(const Error& error) noexcept {
  switch (error.code()) {
    // Names come with what they name, where hosts are containers.
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
  return while_nobody_lets_in(uri, limits, [&](Attempts& /*attempts*/) {
    return connect_once(uri, attempt_deadline(limits));
  });
}

Result<Region> EngineCore::open_region(const Uri& uri, Rights rights, Opening opening,
                                       const ControlLimits& limits) {
  return while_nobody_lets_in(uri, limits, [&](Attempts& attempts) {
    return open_once(uri, rights, opening, attempt_deadline(limits), attempts);
  });
}

Result<Region> EngineCore::open_again(const Uri& uri, Rights rights, Opening opening,
                                      Deadline deadline) {
  Attempts attempts;
  return open_once(uri, rights, opening,
                   std::min(deadline, deadline_after(options_.control_deadline)), attempts);
}

/// Calls `attempt` until it goes well, what is wrong will not pass, or time is up. It says whether
/// the server has answered: that is not asked for again. The log has the first failure and the end,
/// however many attempts lie between.
template <typename Attempt>
auto EngineCore::while_nobody_lets_in(const Uri& uri, const ControlLimits& limits,
                                      const Attempt& attempt)
    -> decltype(attempt(std::declval<Attempts&>())) {
  Attempts attempts;
  if (options_.connect_for <= options_.connect_for.zero()) return attempt(attempts);
  attempts.quiet = true;
  const Clock::time_point began = Clock::now();
  const Deadline until = std::min(limits.until, deadline_after(options_.connect_for));
  std::mutex alone;
  std::condition_variable_any given_up;
  Backoff backoff;
  for (std::size_t count = 1;; ++count) {
    auto made = attempt(attempts);
    const Clock::time_point now = Clock::now();
    if (made) {
      if (count > 1)
        log::info("{}: let in at attempt {}, after {:.1f} s", uri.text(), count,
                  seconds(now - began));
      return made;
    }
    const Clock::duration left = until - now;
    if (attempts.answered || !may_pass(made.error()) || left <= left.zero() ||
        limits.stop.stop_requested()) {
      if (attempts.answered && count == 1) return made;
      log::warn("{}: not let in: {} (attempt {}, after {:.1f} s)", uri.text(),
                made.error().message(), count, seconds(now - began));
      return made;
    }
    if (count == 1)
      log::warn("{}: not let in yet: {}; trying for {:.1f} s more (connect_for)", uri.text(),
                made.error().message(), seconds(left));
    else
      log::debug("{}: attempt {}: {}", uri.text(), count, made.error().message());
    std::unique_lock lock{alone};
    (void)given_up.wait_for(lock, limits.stop, std::min<Clock::duration>(backoff.next(), left),
                            [] { return false; });
  }
}

}  // namespace remora::detail
