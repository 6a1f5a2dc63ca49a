#pragma once

/// Faults on demand, for the unit tests of applications: an engine that loses lanes and
/// connections, is slow, is refused or is not answered, without a NIC, without root, and without a
/// process to kill.
///
///   auto faults = remora::testing::FaultTransport::create({.seed = 7}).value();
///   remora::EngineOptions options;
///   options.faults = faults.hook();
///   auto engine = remora::Engine::open(options).value();  // tcp or rdma, to any server
///   faults.lose_next_lane(remora::testing::Landing::kLanded);
///   auto written = region.write(at, bytes);  // kIndeterminate, and the bytes are there
///
/// It stands between the engine and its real lanes and connections, so all above and below is the
/// real thing: the session is interrupted, connects again and resumes; reads go again, writes and
/// atomics end as kIndeterminate. An engine without one does not know that there is such a thing.
///
/// Over shm an operation is done by the time it has been submitted, and there is nothing to lose:
/// an engine with faults does not connect over it. A URI that names shm fails with kUnsupported;
/// one that leaves the choice gets rdma or tcp.
///
/// Seeds: what befalls a request is drawn by its number on its lane, the lane's number (in the
/// order they were opened, over all engines with this hook) and the seed. So the same calls of one
/// thread meet the same faults. Neighbouring transfers of a queue may share a request, and when a
/// lane is lost, what had come back before is a matter of time.

#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>

#include <remora/owned.h>
#include <remora/result.h>

namespace remora::detail {
class FaultCore;
}

namespace remora::testing {

/// Whether what a lane is lost with had reached the server. The application cannot know.
enum class Landing : std::uint8_t {
  kLanded,  ///< it has had its effect, and the answer is lost
  kLost,    ///< it was never sent
};

/// How often each fault comes: chances from 0 (never) to 1. Of each request on a lane, a read, a
/// write or an atomic of at most Region's piece size, unless another thing is named.
struct FaultRates {
  /// Loses the lane: the session is interrupted with Reason::kLaneBroken, or kPeerGone where the
  /// server has noticed first. What has not come back is
  /// lost with it. A server ends a session that comes back more often than its
  /// `limits.resumes_per_minute`.
  double lose_lane = 0;
  /// Loses the connection, control and lanes: Reason::kPeerGone.
  double lose_connection = 0;
  /// The share of requests that have taken effect among those that lose their lane or connection.
  /// Requests posted before it in the same call have taken effect, those behind it have not.
  double landed = 0.5;
  /// Lets the completion come later by delay_least … max_delay; those behind it on its lane wait
  /// too.
  double delay = 0;
  std::chrono::nanoseconds delay_least{0};
  std::chrono::nanoseconds max_delay = std::chrono::milliseconds{1};
  /// Holds the completion, and those behind it on its lane, until release_completions(): nothing
  /// else comes before the deadline.
  double hold = 0;
  /// The share of requests given to a lane at once, without a barrier, that are sent in another
  /// order, and take effect in it. The answers are still told in the order of the calls, as by
  /// every lane; those of several lanes are reordered by delays.
  double reorder = 0;
  /// The share of attempts to connect, also of a session that comes back, that end with
  /// kConnectionRefused.
  double refuse_connect = 0;
  /// The share of the server's messages on the control channel that never come. Eight requests that
  /// are never answered are all that a session may have open; then control requests time out.
  double drop_answer = 0;
};

struct FaultOptions {
  std::uint64_t seed = 1;
  FaultRates rates{};
};

/// The faults injected so far, so that a test can show that they occurred.
struct FaultCounts {
  std::uint64_t connects = 0;  ///< that were let through
  std::uint64_t connects_refused = 0;
  std::uint64_t connections_lost = 0;
  std::uint64_t lanes = 0;  ///< that were opened
  std::uint64_t lanes_lost = 0;
  std::uint64_t requests = 0;         ///< handed to lanes
  std::uint64_t requests_landed = 0;  ///< sent, and lost with their lane or connection
  std::uint64_t requests_unsent = 0;  ///< lost with it, and never sent
  std::uint64_t completions_delayed = 0;
  std::uint64_t completions_held = 0;
  std::uint64_t chains_reordered = 0;
  std::uint64_t answers_held = 0;
  std::uint64_t answers_dropped = 0;
};

/// Most that delays may be set to.
inline constexpr std::chrono::nanoseconds kMaxFaultDelay = std::chrono::minutes{1};

/// Copyable handle: all copies, and the engines with its hook, share one state, which lives as long
/// as any of them. Thread-safe; nothing blocks. Commands are for whatever engine comes first.
/// One that was moved from does nothing: its hook() is null, set_rates() answers kClosed.
class FaultTransport {
 public:
  /// Errors: kInvalidArgument (a chance that is not within 0 … 1; delays that are negative, the
  /// wrong way round or above kMaxFaultDelay).
  static Result<FaultTransport> create(const FaultOptions& options = {});

  /// For EngineOptions::faults, before Engine::open().
  [[nodiscard]] const std::shared_ptr<detail::FaultCore>& hook() const noexcept;

  /// From the next request, attempt and message on. Errors: as create(); nothing has changed then.
  Status set_rates(const FaultRates& rates) const;

  /// The next request that goes to a lane, when `requests_before` others have, takes the lane with
  /// it. Several calls before one of them strikes: the last counts.
  void lose_next_lane(Landing landing, std::uint64_t requests_before = 0) const noexcept;
  /// As lose_next_lane(), with all of the session's connection.
  void lose_next_connection(Landing landing, std::uint64_t requests_before = 0) const noexcept;
  /// Loses all connections that there are, now: what has not come back is lost with them.
  void lose_connections() const noexcept;
  /// The next `count` attempts to connect are refused.
  void refuse_connects(std::uint64_t count) const noexcept;
  /// Attempts to connect are refused for so long; 0 ends that.
  void refuse_connects_for(std::chrono::nanoseconds time) const noexcept;
  /// The completions of so many requests from the next one on come later by `delay`, at most
  /// kMaxFaultDelay.
  void delay_next(std::uint64_t requests, std::chrono::nanoseconds delay) const noexcept;
  /// No completion comes any more on any lane, until they are released. Lanes end with their
  /// deadlines, and those that follow them are held too.
  void hold_completions() const noexcept;
  /// Ends hold_completions(), and lets go of what FaultRates::hold has caught.
  void release_completions() const noexcept;
  /// The server falls silent: its messages on the control channel come when they are released.
  /// A hold that is longer than the session's lease ends the session's connection
  /// (Reason::kSilent).
  void hold_answers() const noexcept;
  void release_answers() const noexcept;

  [[nodiscard]] FaultCounts counts() const noexcept;

 private:
  explicit FaultTransport(std::shared_ptr<detail::FaultCore> core) noexcept
      : core_{std::move(core)} {}
  remora::detail::OwnedShared<detail::FaultCore> core_;
};

}  // namespace remora::testing
