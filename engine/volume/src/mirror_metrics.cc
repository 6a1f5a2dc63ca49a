#include "mirror_metrics.h"

#include <algorithm>
#include <string>

#include <remora/owned.h>

#include "mirror_census.h"
#include "per_registry.h"

namespace remora::volume::detail {

using remora::detail::MutexLock;

namespace {

constexpr std::array kStates{MirrorGroupState::kInSync, MirrorGroupState::kDegraded,
                             MirrorGroupState::kPromoting, MirrorGroupState::kLost,
                             MirrorGroupState::kUnadopted};
constexpr std::array<const char*, 2> kCopyNames{"zones", "members"};

remora::detail::PerProcess<PerRegistry<MirrorMetrics>> g_mirrors;

/// A pointer to the metrics that keeps their registry.
struct KeptMirrors {
  std::shared_ptr<metrics::Registry> registry;
  std::shared_ptr<MirrorMetrics> metrics;
};

/// A store near a client answers in 1 to 10 ms; a confirmation is valid for 2 s.
metrics::HistogramShape confirmation_times() {
  constexpr std::uint64_t kMillisecond = 1'000'000;
  metrics::HistogramShape shape{metrics::Unit::kSeconds, {}};
  for (const unsigned ms : {5U, 50U, 500U, 2'000U}) shape.bounds.push_back(ms * kMillisecond);
  return shape;
}

/// Of one that the registry has no room for: an empty handle, which counts nothing.
template <typename Handle>
Handle handle_of(const Result<Handle>& made) {
  return made ? *made : Handle{};
}

}  // namespace

std::string_view to_string(MirrorGroupState state) noexcept {
  switch (state) {
    case MirrorGroupState::kInSync: return "in_sync";
    case MirrorGroupState::kDegraded: return "degraded";
    case MirrorGroupState::kPromoting: return "promoting";
    case MirrorGroupState::kLost: return "lost";
    case MirrorGroupState::kUnadopted: return "unadopted";
  }
  return "unknown";
}

std::shared_ptr<MirrorMetrics> MirrorMetrics::of(metrics::Registry& registry) {
  auto keeps = std::make_shared<KeptMirrors>();
  keeps->registry = registry.shared_from_this();
  keeps->metrics =
      g_mirrors.get().of(registry, [&] { return std::make_shared<MirrorMetrics>(&registry); });
  MirrorMetrics* const metrics = keeps->metrics.get();
  return {std::move(keeps), metrics};
}

std::shared_ptr<MirrorMetrics> MirrorMetrics::none() {
  return std::make_shared<MirrorMetrics>(nullptr);
}

MirrorMetrics::MirrorMetrics(metrics::Registry* registry) : registry_{registry} {
  if (registry_ == nullptr) return;
  declare_counters();
  declare_levels();
}

template <std::size_t N>
void MirrorMetrics::declare(std::array<metrics::Counter, N>& counters, std::string_view name,
                            std::string_view help, const char* label,
                            const std::array<const char*, N>& values) {
  for (std::size_t i = 0; i < N; ++i)
    counters.at(i) = handle_of(registry_->counter(name, help, {{label, values.at(i)}}));
}

void MirrorMetrics::declare_counters() {
  declare(claims_, "remora_client_mirror_claims_total",
          "Claims of mirrors, with the adoption of their groups.", "outcome",
          std::array<const char*, kClaims>{"ok", "held", "failed"});
  declare(ends_, "remora_client_mirror_claims_ended_total",
          "Claims that have ended; lost: another client has claimed the volume.", "reason",
          std::array<const char*, kEnds>{"released", "lost"});
  declare(fences_, "remora_client_mirror_fences_total",
          "Fences of members, so that older grants on them end.", "outcome",
          std::array<const char*, kFences>{"ok", "new_memory", "failed"});
  declare(removals_, "remora_client_mirror_members_removed_total",
          "Members that a writer has removed from their groups, by cause.", "cause",
          std::array<const char*, kCauses>{"unreachable", "no_answer", "new_memory", "refused",
                                           "missed_write", "request", "other"});
  declare(copied_, "remora_client_mirror_copied_bytes_total",
          "Bytes that a writer has copied: of zones, to make members equal; to new members.",
          "kind", kCopyNames);
  confirmation_failures_ =
      handle_of(registry_->counter("remora_client_mirror_confirmation_failures_total",
                                   "Requests to confirm a configuration that were not answered, or "
                                   "found another one.",
                                   {}));
  reads_repeated_ = handle_of(registry_->counter(
      "remora_client_mirror_reads_repeated_total",
      "Reads that were carried out again: their configuration was not confirmed any more.", {}));
  writes_indeterminate_ = handle_of(registry_->counter(
      "remora_client_mirror_writes_indeterminate_total",
      "Writes to groups of mirrors, atomics too, that ended as indeterminate.", {}));
  configurations_ = handle_of(registry_->counter(
      "remora_client_mirror_configurations_total",
      "Configurations of groups that a writer has adopted, or made afterwards.", {}));
  confirmation_latency_ = handle_of(
      registry_->histogram("remora_client_mirror_confirmation_latency_seconds",
                           "Time of a request to the store that has confirmed a configuration.", {},
                           confirmation_times()));
}

void MirrorMetrics::declare_level(std::string_view name, std::string_view help,
                                  const metrics::Labels& labels, std::function<double()> value) {
  auto made = registry_->gauge_callback(name, help, labels, std::move(value));
  if (made) series_.push_back(std::move(*made));
}

void MirrorMetrics::declare_levels() {
  for (const MirrorGroupState state : kStates)
    declare_level("remora_client_mirror_groups", "Groups of claimed mirrors, by their state.",
                  {{"state", std::string{to_string(state)}}}, [this, state] {
                    return sum([&](const MirrorCensus& each) { return each.count(state); });
                  });
  for (const MirrorCopy kind : {MirrorCopy::kZones, MirrorCopy::kMembers})
    declare_level("remora_client_mirror_resync_bytes",
                  "Bytes to copy: of zones that members may have unequal; of members that are "
                  "being built.",
                  {{"kind", kCopyNames.at(static_cast<std::size_t>(kind))}}, [this, kind] {
                    return sum([&](const MirrorCensus& each) { return each.bytes_left(kind); });
                  });
  declare_level("remora_client_mirror_writers", "Mirrors that this process has claimed.", {},
                [this] { return sum([](const MirrorCensus& each) { return each.writers(); }); });
  declare_level("remora_client_mirror_writer_epoch",
                "Writer epoch of the claim; of several claims the highest; 0: none.", {}, [this] {
                  const MutexLock lock{mutex_};
                  std::uint64_t highest = 0;
                  for (const MirrorCensus* const each : censuses_)
                    highest = std::max(highest, each->writer_epoch());
                  return static_cast<double>(highest);
                });
  auto degraded = registry_->counter_callback(
      "remora_client_mirror_degraded_seconds_total",
      "Seconds in which groups had fewer members in sync than copies, added up over the groups.",
      {}, [this] {
        constexpr double kNanosecond = 1e-9;
        return static_cast<double>(degraded_ns_.load(std::memory_order_relaxed)) * kNanosecond;
      });
  if (degraded) series_.push_back(std::move(*degraded));
}

template <typename Value>
double MirrorMetrics::sum(const Value& value) const {
  const MutexLock lock{mutex_};
  std::uint64_t all = 0;
  for (const MirrorCensus* const each : censuses_) all += value(*each);
  return static_cast<double>(all);
}

void MirrorMetrics::add(const MirrorCensus& census) {
  const MutexLock lock{mutex_};
  censuses_.push_back(&census);
}

void MirrorMetrics::remove(const MirrorCensus& census) noexcept {
  const MutexLock lock{mutex_};
  std::erase(censuses_, &census);
}

void MirrorMetrics::count(metrics::Counter counter, std::uint64_t by) const noexcept {
  if (registry_ != nullptr) registry_->recorder().add(counter, by);
}

void MirrorMetrics::claimed() const noexcept { count(claims_[kClaimOk]); }

const Error& MirrorMetrics::claim_failed(const Error& error) const noexcept {
  count(claims_[error.code() == Code::kBusy ? kClaimHeld : kClaimFailed]);
  return error;
}

void MirrorMetrics::claim_lost() const noexcept { count(ends_[kLost]); }

/// A release that finds another writer has lost its claim; one without an answer ends with its
/// lease.
void MirrorMetrics::released(const Status& done) const noexcept {
  count(ends_[!done && done.error().code() == Code::kAccessRefused ? kLost : kReleased]);
}

void MirrorMetrics::count_fence(const Error* error) const noexcept {
  if (error == nullptr)
    count(fences_[kFenceOk]);
  else
    count(fences_[error->reason() == Reason::kNewMemory ? kFenceNewMemory : kFenceFailed]);
}

MirrorMetrics::Cause MirrorMetrics::cause_of(const Error& error) noexcept {
  if (error.reason() == Reason::kNewMemory) return kNewMemory;
  switch (error.code()) {
    case Code::kConnectionLost:
    case Code::kConnectionRefused:
    case Code::kUnreachable: return kUnreachable;
    case Code::kTimedOut:
    case Code::kIndeterminate: return kNoAnswer;
    case Code::kAccessRefused: return kRefused;
    case Code::kBusy: return kMissedWrite;
    case Code::kStaleRegion: return kNewMemory;
    default: return kOther;
  }
}

void MirrorMetrics::member_removed(const Error& cause) const noexcept {
  count(removals_[cause_of(cause)]);
}

void MirrorMetrics::member_removed_on_request() const noexcept { count(removals_[kRequest]); }

void MirrorMetrics::confirmation(bool confirmed, std::chrono::nanoseconds took) const noexcept {
  if (registry_ == nullptr) return;
  if (confirmed)
    registry_->recorder().observe(
        confirmation_latency_, static_cast<std::uint64_t>(std::max<std::int64_t>(took.count(), 0)));
  else
    count(confirmation_failures_);
}

void MirrorMetrics::read_repeated() const noexcept { count(reads_repeated_); }

const Error& MirrorMetrics::write_failed(const Error& error) const noexcept {
  if (error.code() == Code::kIndeterminate) count(writes_indeterminate_);
  return error;
}

void MirrorMetrics::configuration_changed() const noexcept { count(configurations_); }

void MirrorMetrics::copied(MirrorCopy kind, std::uint64_t bytes) const noexcept {
  count(copied_.at(static_cast<std::size_t>(kind)), bytes);
}

void MirrorMetrics::degraded_for(std::chrono::nanoseconds time) noexcept {
  degraded_ns_.fetch_add(static_cast<std::uint64_t>(time.count()), std::memory_order_relaxed);
}

}  // namespace remora::volume::detail
