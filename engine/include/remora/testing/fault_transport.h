#pragma once

/// Faults on demand, for the unit tests of applications: an engine loses lanes and connections, is
/// slow, is refused or gets no answers, without a NIC, without root, and without a process to kill.
///
///   auto faults = remora::testing::FaultTransport::create({.seed = 7}).value();
///   remora::EngineOptions options;
///   options.faults = faults.hook();
///   auto engine = remora::Engine::open(options).value();  // tcp or rdma, to any server
///   faults.lose_next_lane(remora::testing::Landing::kLanded);
///   auto written = region.write(at, bytes);  // kIndeterminate, and the bytes are there
///
/// It is between the engine and its real lanes and connections, which both work as in production:
/// the session is interrupted, connects again and resumes; reads are repeated, writes and atomics
/// end as kIndeterminate. It has no effect on an engine without its hook.
///
/// Over shm an operation is done when it has been submitted, so no request can be lost: an engine
/// with faults does not connect over it. A URI that names shm fails with kUnsupported; a URI
/// without a transport gets rdma or tcp.
///
/// Seeds: the faults of a request depend on its number on its lane, the lane's number (in the order
/// of opening, over all engines with this hook) and the seed. So the same calls of one thread meet
/// the same faults. Neighbouring transfers of a queue may share a request, and which answers have
/// come back before a lane is lost depends on timing.

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

/// Whether the request with which a lane is lost has reached the server. The application cannot
/// know.
enum class Landing : std::uint8_t {
  kLanded,  ///< it has taken effect, and the answer is lost
  kLost,    ///< it was never sent
};

/// How often each fault occurs: chances from 0 (never) to 1. Unless a member says otherwise, the
/// chance is that of each request on a lane: a read, a write or an atomic of at most Region's piece
/// size.
struct FaultRates {
  /// Loses the lane: the session is interrupted with Reason::kLaneBroken, or kPeerGone if the
  /// server has noticed first. Requests without an answer are lost with it. A server ends a session
  /// that resumes more often than its `limits.resumes_per_minute`.
  double lose_lane = 0;
  /// Loses the connection, control and lanes: Reason::kPeerGone.
  double lose_connection = 0;
  /// The share of requests that have taken effect among those that lose their lane or connection.
  /// Requests posted before such a request in the same call have taken effect, later ones have not.
  double landed = 0.5;
  /// Delays the completion by delay_least … max_delay; later completions on its lane wait, too.
  double delay = 0;
  std::chrono::nanoseconds delay_least{0};  ///< at most max_delay
  std::chrono::nanoseconds max_delay = std::chrono::milliseconds{1};
  /// Holds the completion, and later ones on its lane, until release_completions(): no other event
  /// ends the operation before its deadline.
  double hold = 0;
  /// The share of requests posted together, without a barrier, that are sent, and take effect, in
  /// another order. Their completions still come in the order of the calls, as on every lane;
  /// delays reorder those of several lanes.
  double reorder = 0;
  /// The share of attempts to connect, also to resume a session, that end with kConnectionRefused.
  double refuse_connect = 0;
  /// The share of the server's messages on the control channel that are lost. A session may have at
  /// most eight unanswered requests; after that control requests time out.
  double drop_answer = 0;
};

/// The faults from the beginning.
struct FaultOptions {
  std::uint64_t seed = 1;  ///< see "Seeds" at the top of this file
  FaultRates rates{};      ///< set_rates() replaces them
};

/// The faults injected so far, so that a test can show that they occurred.
struct FaultCounts {
  std::uint64_t connects = 0;  ///< attempts that were not refused
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

/// The longest delay that can be set.
inline constexpr std::chrono::nanoseconds kMaxFaultDelay = std::chrono::minutes{1};

/// Copyable handle: all copies, and the engines with its hook, share one state, which lives as long
/// as any of them. Thread-safe; no function blocks. A command applies to the first engine that it
/// can affect. A FaultTransport that was moved from does nothing: its hook() is null, set_rates()
/// answers kClosed.
class FaultTransport {
 public:
  /// Errors: kInvalidArgument (a chance that is not within 0 … 1; delays that are negative, in the
  /// wrong order or above kMaxFaultDelay).
  static Result<FaultTransport> create(const FaultOptions& options = {});

  /// For EngineOptions::faults, before Engine::open().
  [[nodiscard]] const std::shared_ptr<detail::FaultCore>& hook() const noexcept;

  /// Applies from the next request, attempt and message on. Errors: as create(); then nothing has
  /// changed.
  Status set_rates(const FaultRates& rates) const;

  /// After `requests_before` more requests, the next request on any lane loses its lane. Of several
  /// calls before that happens, the last one counts.
  void lose_next_lane(Landing landing, std::uint64_t requests_before = 0) const noexcept;
  /// As lose_next_lane(), with the session's whole connection.
  void lose_next_connection(Landing landing, std::uint64_t requests_before = 0) const noexcept;
  /// Loses all present connections, with all requests that have no answer yet.
  void lose_connections() const noexcept;
  /// The next `count` attempts to connect are refused.
  void refuse_connects(std::uint64_t count) const noexcept;
  /// Attempts to connect are refused for this time; 0 ends that.
  void refuse_connects_for(std::chrono::nanoseconds time) const noexcept;
  /// Delays the completions of the next `requests` requests by `delay`, at most kMaxFaultDelay.
  void delay_next(std::uint64_t requests, std::chrono::nanoseconds delay) const noexcept;
  /// From now on no lane reports a completion, until release_completions(). Lanes end with the
  /// deadlines of their operations, and the lanes that replace them are held, too.
  void hold_completions() const noexcept;
  /// Ends hold_completions(), and releases the completions that FaultRates::hold has held.
  void release_completions() const noexcept;
  /// The server seems silent: its messages on the control channel arrive when they are released. A
  /// hold that is longer than the session's lease ends the session's connection (Reason::kSilent).
  void hold_answers() const noexcept;
  /// Ends hold_answers(): the messages arrive now, in their order.
  void release_answers() const noexcept;

  /// The faults so far, of all engines with this hook. Each number is exact; together they may be
  /// of different moments.
  [[nodiscard]] FaultCounts counts() const noexcept;

 private:
  explicit FaultTransport(std::shared_ptr<detail::FaultCore> core) noexcept
      : core_{std::move(core)} {}
  remora::detail::OwnedShared<detail::FaultCore> core_;
};

}  // namespace remora::testing
