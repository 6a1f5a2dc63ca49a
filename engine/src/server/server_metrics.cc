#include "server/server_metrics.h"

#include <string>
#include <utility>

#include "base/log.h"

namespace remora::detail {

namespace {
constexpr std::array<const char*, static_cast<std::size_t>(RequestKind::kCount)> kRequestNames{
    "hello",       "create",    "open",     "extents",  "close",       "list",  "stat",
    "remove",      "ping",      "notify",   "prove",    "usage",       "fence", "resize",
    "grant_state", "event_ack", "reattach", "sessions", "end_session", "drain"};
constexpr TransportKind kKindsServed[] = {TransportKind::kRdma, TransportKind::kShm,
                                          TransportKind::kTcp};
constexpr std::array<const char*, static_cast<std::size_t>(ServerMetrics::Limit::kCount)> kLimits{
    "registrations_max",
    "windows_max",
    "registered_bytes_max",
    "regions_max",
    "session_regions_max",
    "session_memory",
    "quota",
    "pool",
    "locked_memory",
    "other"};
}  // namespace

std::optional<ServerMetrics::Limit> ServerMetrics::limit_of(const Error& error) noexcept {
  if (error.reason() == Reason::kMemlock) return Limit::kLockedMemory;
  if (error.reason() == Reason::kPoolFull) return Limit::kPool;
  if (error.code() != Code::kLimitExceeded && error.code() != Code::kOutOfMemory)
    return std::nullopt;
  constexpr std::string_view kKeys = "limits.";
  std::string_view subject = error.subject();
  if (subject.starts_with("bytes left of the quota")) return Limit::kQuota;
  if (!subject.starts_with(kKeys)) return Limit::kOther;
  subject.remove_prefix(kKeys.size());
  for (std::size_t limit = 0; limit < kLimits.size(); ++limit)
    if (subject == kLimits[limit]) return static_cast<Limit>(limit);
  return Limit::kOther;
}

Result<ServerMetrics> ServerMetrics::create(std::shared_ptr<metrics::Registry> registry) {
  ServerMetrics made;
  Status status = log::count_lost_lines(*registry);
  const auto keep = [&status](auto& handle, auto&& registered) {
    if (!status) return;
    if (registered)
      handle = *registered;
    else
      status = registered.error();
  };
  for (const TransportKind kind : kKindsServed) {
    const metrics::Labels labels{{"transport", std::string{to_string(kind)}}};
    const auto index = static_cast<std::size_t>(kind);
    keep(made.sessions_[index],
         registry->gauge("remora_server_sessions", "Clients connected.", labels));
    keep(made.sessions_total_[index],
         registry->counter("remora_server_sessions_total", "Sessions begun.", labels));
  }
  for (std::size_t kind = 0; kind < kKinds; ++kind)
    for (std::size_t ok = 0; ok < 2; ++ok)
      keep(made.requests_[kind][ok],
           registry->counter("remora_server_control_requests_total",
                             "Control requests answered, by whether they succeeded.",
                             {{"request", kRequestNames[kind]}, {"status", ok ? "ok" : "error"}}));
  keep(made.latency_,
       registry->histogram("remora_server_control_latency_seconds",
                           "Time from the arrival of a control request to its answer.", {},
                           metrics::HistogramShape::latency()));
  keep(made.delayed_,
       registry->counter("remora_server_requests_delayed_total",
                         "Control requests that waited, for limits.requests_per_second."));
  constexpr std::array<const char*, static_cast<std::size_t>(SessionEnd::kCount)> kEnds{
      "left",    "lost",           "lapsed",   "protocol",    "refused", "no_hello",
      "stopped", "unknown_client", "key_kept", "handed_over", "by_admin"};
  for (std::size_t end = 0; end < kEnds.size(); ++end)
    keep(made.sessions_ended_[end],
         registry->counter("remora_server_sessions_ended_total",
                           "Sessions ended, by what ended them.", {{"reason", kEnds[end]}}));
  keep(made.resumed_, registry->counter("remora_server_sessions_resumed_total",
                                        "Sessions, ended as lost or lapsed, that went on."));
  keep(made.kept_, registry->gauge("remora_server_sessions_kept",
                                   "Sessions without a client, kept for it to come back to."));
  constexpr std::array<const char*, static_cast<std::size_t>(Refusal::kCount)> kRefusals{
      "no_hello",           "version", "authentication", "limit",
      "pending_handshakes", "no_key",  "unknown_client", "wrong_key"};
  for (std::size_t why = 0; why < kRefusals.size(); ++why)
    keep(made.refused_[why],
         registry->counter("remora_server_sessions_refused_total", "Clients refused, by why.",
                           {{"reason", kRefusals[why]}}));
  keep(made.violations_,
       registry->counter("remora_server_protocol_violations_total",
                         "Sessions ended because a peer did not follow the protocol."));
  if (status) status = made.add_outcomes(*registry);
  keep(made.grants_, registry->gauge("remora_server_grants", "Regions open, over all sessions."));
  keep(made.regions_, registry->gauge("remora_server_regions", "Regions that exist."));
  keep(made.warm_ready_,
       registry->gauge("remora_server_warm_restart_ready",
                       "1: the next process can take the memory over (pool.warm_restart)."));
  keep(made.taken_over_, registry->gauge("remora_server_memory_taken_over",
                                         "1: the memory is that of the process before."));
  keep(made.reattached_,
       registry->counter("remora_server_sessions_reattached_total",
                         "Sessions of the process before with which their clients went on."));
  if (!status) return status.error();
  made.registry_ = std::move(registry);
  return made;
}

/// Declares the series of notifications, of revocations and of requests that met a limit.
Status ServerMetrics::add_outcomes(metrics::Registry& registry) {
  Status status;
  const auto keep = [&status](metrics::Counter& handle,
                              const Result<metrics::Counter>& registered) {
    if (!status) return;
    if (registered)
      handle = *registered;
    else
      status = registered.error();
  };
  constexpr std::array<const char*, 3> kResults{"ok", "unheard", "threw"};
  for (std::size_t result = 0; result < kResults.size(); ++result)
    keep(notifications_[result],
         registry.counter("remora_server_notifications_total",
                          "Writes that clients told of, by what the application's handler did.",
                          {{"status", kResults[result]}}));
  for (std::size_t limit = 0; limit < kLimits.size(); ++limit)
    keep(requests_refused_[limit],
         registry.counter("remora_server_requests_refused_total",
                          "Control requests refused for want of something, by the limit.",
                          {{"limit", kLimits[limit]}}));
  constexpr std::array<const char*, 2> kRevokedFor{"fenced", "revoked"};
  constexpr std::array<const char*, 2> kTakenBack{"acknowledged", "forced"};
  for (std::size_t why = 0; why < kRevokedFor.size(); ++why)
    for (std::size_t how = 0; how < kTakenBack.size(); ++how)
      keep(revoked_[why][how],
           registry.counter("remora_server_grants_revoked_total",
                            "Grants taken back, by why, and whether their clients agreed in time.",
                            {{"reason", kRevokedFor[why]}, {"how", kTakenBack[how]}}));
  return status;
}

void ServerMetrics::session_began(TransportKind kind) const noexcept {
  sessions_[static_cast<std::size_t>(kind)].add(1);
  registry_->recorder().add(sessions_total_[static_cast<std::size_t>(kind)]);
}

void ServerMetrics::session_gone(TransportKind kind) const noexcept {
  sessions_[static_cast<std::size_t>(kind)].add(-1);
}

void ServerMetrics::session_ended(SessionEnd end) const noexcept {
  registry_->recorder().add(sessions_ended_[static_cast<std::size_t>(end)]);
}

void ServerMetrics::session_resumed() const noexcept { registry_->recorder().add(resumed_); }

void ServerMetrics::session_reattached() const noexcept { registry_->recorder().add(reattached_); }

void ServerMetrics::session_refused(Refusal why) const noexcept {
  registry_->recorder().add(refused_[static_cast<std::size_t>(why)]);
}

void ServerMetrics::request_refused(Limit limit) const noexcept {
  registry_->recorder().add(requests_refused_[static_cast<std::size_t>(limit)]);
}

void ServerMetrics::request(RequestKind kind, bool ok,
                            std::chrono::nanoseconds took) const noexcept {
  const metrics::Recorder recorder = registry_->recorder();
  recorder.add(requests_[static_cast<std::size_t>(kind)][ok ? 1 : 0]);
  recorder.observe(latency_, static_cast<std::uint64_t>(took.count()));
}

void ServerMetrics::request_delayed() const noexcept { registry_->recorder().add(delayed_); }

void ServerMetrics::notification(HandlerResult result) const noexcept {
  registry_->recorder().add(notifications_[static_cast<std::size_t>(result)]);
}

void ServerMetrics::grant_revoked(Reason reason, TakenBack how) const noexcept {
  registry_->recorder().add(
      revoked_[reason == Reason::kFenced ? 0 : 1][static_cast<std::size_t>(how)]);
}

void ServerMetrics::protocol_violation() const noexcept { registry_->recorder().add(violations_); }

}  // namespace remora::detail
