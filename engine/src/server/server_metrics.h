#pragma once

/// The metrics of a server.

#include <array>
#include <memory>
#include <optional>

#include <remora/metrics/registry.h>
#include <remora/result.h>

#include "server/memory/pool.h"

namespace remora::detail {

/// Requests as a label, in the order of kRequestNames. A goodbye counts as kPing.
enum class RequestKind : std::size_t {
  kHello,
  kCreate,
  kOpen,
  kExtents,
  kClose,
  kList,
  kStat,
  kRemove,
  kPing,
  kNotify,
  kProve,
  kUsage,
  kFence,
  kResize,
  kGrantState,
  kEventAck,
  kReattach,
  kSessions,
  kEndSession,
  kDrain,
  kCount
};

class ServerMetrics {
 public:
  /// Errors: as metrics::Registry.
  static Result<ServerMetrics> create(std::shared_ptr<metrics::Registry> registry);

  void session_began(TransportKind kind) const noexcept;
  /// A session object is destroyed: the gauge of sessions falls.
  void session_gone(TransportKind kind) const noexcept;
  /// The cause that ended a session, as a label.
  enum class SessionEnd : std::size_t {
    kLeft,
    kLost,    ///< its channel or a lane broke
    kLapsed,  ///< its client has sent nothing for the lease
    kProtocol,
    kRefused,
    kNoHello,
    kStopped,
    kUnknownClient,  ///< the server no longer has its client
    kKeyKept,        ///< a device did not invalidate a key of the session
    kHandedOver,     ///< the next process serves its memory and its client
    kByAdmin,        ///< an administrator has ended it
    kCount
  };
  void session_ended(SessionEnd end) const noexcept;
  /// A client has resumed a session that had ended as lost or lapsed.
  void session_resumed() const noexcept;
  /// The number of sessions that their clients may resume.
  void sessions_kept(std::size_t count) const noexcept {
    kept_.set(static_cast<std::int64_t>(count));
  }
  /// The reason why a client was refused, as a label.
  enum class Refusal : std::size_t {
    kNoHello,
    kVersion,
    kAuthentication,  ///< the client wants keys, and the server has 'auth: none'
    kLimit,
    kPendingHandshake,  ///< displaced by newer connections before it had finished the handshake
    kNoKey,
    kUnknownClient,
    kWrongKey,
    kCount
  };
  void session_refused(Refusal why) const noexcept;
  /// A limit that a request has met, as a label.
  enum class Limit : std::size_t {
    kRegistrations,
    kWindows,
    kRegisteredBytes,
    kRegions,
    kSessionRegions,
    kSessionMemory,
    kQuota,
    kPool,
    kLockedMemory,  ///< RLIMIT_MEMLOCK of the server
    kOther,         ///< the device's limit, the host's memory and others
    kCount
  };
  /// Empty: `error` is not about a limit.
  [[nodiscard]] static std::optional<Limit> limit_of(const Error& error) noexcept;
  void request_refused(Limit limit) const noexcept;
  void request(RequestKind kind, bool ok, std::chrono::nanoseconds took) const noexcept;
  /// Counts a request that the server delays because of limits.requests_per_second.
  void request_delayed() const noexcept;
  void protocol_violation() const noexcept;
  /// Whether a handler took a notification.
  enum class HandlerResult : std::size_t { kHandled, kNoHandler, kThrew };
  void notification(HandlerResult result) const noexcept;
  /// How a revocation ended a grant, as a label.
  enum class TakenBack : std::size_t { kAcknowledged, kForced, kCount };
  void grant_revoked(Reason reason, TakenBack how) const noexcept;
  void grants(std::int64_t delta) const noexcept { grants_.add(delta); }
  void regions(std::size_t count) const noexcept { regions_.set(static_cast<std::int64_t>(count)); }
  /// Whether the next process can take the memory over.
  void warm_restart_ready(bool ready) const noexcept { warm_ready_.set(ready ? 1 : 0); }
  /// The same gauge, for WarmMemory.
  [[nodiscard]] metrics::Gauge warm_restart_gauge() const noexcept { return warm_ready_; }
  /// Whether the memory is that of the process before.
  void memory_taken_over(bool taken_over) const noexcept { taken_over_.set(taken_over ? 1 : 0); }
  /// A client has returned to a session of the previous process.
  void session_reattached() const noexcept;

  [[nodiscard]] const std::shared_ptr<metrics::Registry>& registry() const noexcept {
    return registry_;
  }
  [[nodiscard]] std::int64_t open_grants() const noexcept { return registry_->value(grants_); }

 private:
  Status add_outcomes(metrics::Registry& registry);

  static constexpr std::size_t kKinds = static_cast<std::size_t>(RequestKind::kCount);
  std::shared_ptr<metrics::Registry> registry_;
  std::array<metrics::Gauge, 4> sessions_{};  ///< by TransportKind
  std::array<metrics::Counter, 4> sessions_total_{};
  std::array<std::array<metrics::Counter, 2>, kKinds> requests_{};
  metrics::Histogram latency_;
  metrics::Counter delayed_;
  std::array<metrics::Counter, static_cast<std::size_t>(SessionEnd::kCount)> sessions_ended_{};
  std::array<metrics::Counter, static_cast<std::size_t>(Refusal::kCount)> refused_{};
  std::array<metrics::Counter, static_cast<std::size_t>(Limit::kCount)> requests_refused_{};
  metrics::Counter resumed_;
  metrics::Gauge kept_;
  metrics::Counter violations_;
  std::array<metrics::Counter, 3> notifications_{};           ///< by HandlerResult
  std::array<std::array<metrics::Counter, 2>, 2> revoked_{};  ///< fenced or revoked, by TakenBack
  metrics::Gauge grants_;
  metrics::Gauge regions_;
  metrics::Gauge warm_ready_;
  metrics::Gauge taken_over_;
  metrics::Counter reattached_;
};

}  // namespace remora::detail
