#include "store_metrics.h"

#include <string>
#include <utility>

namespace remora::volume {

namespace {

constexpr std::array<const char*, StoreMetrics::kCalls> kCallNames{"get", "commit", "lease"};
constexpr std::array<const char*, 6> kCauseNames{"timed_out",   "unreachable", "denied",
                                                 "lease_ended", "unknown",     "other"};

/// A store near a client answers in 1 to 10 ms; a lease lasts 10 s.
metrics::HistogramShape store_latency() {
  constexpr std::uint64_t kMillisecond = 1'000'000;
  metrics::HistogramShape shape{metrics::Unit::kSeconds, {}};
  for (const unsigned ms : {1U, 10U, 50U, 200U, 1'000U, 5'000U})
    shape.bounds.push_back(ms * kMillisecond);
  return shape;
}

/// Keeps a handle, or the first error that is not the lack of room.
template <typename Handle>
Handle keep(const Result<Handle>& made, Status& status) {
  if (made) return *made;
  if (made.error().code() != Code::kLimitExceeded && status) status = made.error();
  return {};
}

}  // namespace

Result<StoreMetrics> StoreMetrics::create(std::shared_ptr<metrics::Registry> registry,
                                          StoreKind kind) {
  static_assert(kCauseNames.size() == kCauses);
  StoreMetrics made;
  Status status;
  const std::string store = kind == StoreKind::kFile ? "file" : "etcd";
  for (std::size_t call = 0; call < kCalls; ++call) {
    made.latency_[call] = keep(
        registry->histogram("remora_cluster_store_latency_seconds",
                            "Time of a call to the cluster's store that was answered; get: ranges, "
                            "too; lease: to grant, renew and end one.",
                            {{"store", store}, {"op", kCallNames[call]}}, store_latency()),
        status);
    for (std::size_t cause = 0; cause < kCauses; ++cause)
      if (happens(static_cast<Call>(call), static_cast<Cause>(cause)))
        made.errors_[call][cause] =
            keep(registry->counter(
                     "remora_cluster_store_errors_total",
                     "Calls to the cluster's store that failed, or whose outcome is not known.",
                     {{"store", store}, {"op", kCallNames[call]}, {"reason", kCauseNames[cause]}}),
                 status);
  }
  if (!status) return status.error();
  made.registry_ = std::move(registry);
  return made;
}

/// A pair that does not happen has no series.
bool StoreMetrics::happens(Call call, Cause cause) noexcept {
  if (cause == kUnknown) return call == Call::kCommit;
  return cause != kLeaseEnded || call != Call::kGet;
}

StoreMetrics::Cause StoreMetrics::cause_of(const Error& error) noexcept {
  switch (error.code()) {
    case Code::kTimedOut: return kTimedOut;
    case Code::kUnreachable: return kUnreachable;
    case Code::kPermissionDenied: return kDenied;
    case Code::kNotFound: return kLeaseEnded;
    default: return kOther;
  }
}

void StoreMetrics::answered(Call call, std::chrono::nanoseconds took) const noexcept {
  registry_->recorder().observe(latency_[static_cast<std::size_t>(call)],
                                static_cast<std::uint64_t>(took.count()));
}

void StoreMetrics::failed(Call call, const Error& error) const noexcept {
  const Cause cause = cause_of(error);
  registry_->recorder().add(
      errors_[static_cast<std::size_t>(call)][happens(call, cause) ? cause : kOther]);
}

void StoreMetrics::outcome_unknown() const noexcept {
  registry_->recorder().add(errors_[static_cast<std::size_t>(Call::kCommit)][kUnknown]);
}

}  // namespace remora::volume
