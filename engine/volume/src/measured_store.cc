#include "measured_store.h"

namespace remora::volume {

namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

/// Only calls that were answered have a latency: that of the others is their time limit.
template <typename F>
auto MeasuredStore::measure(StoreMetrics::Call call, const F& make) {
  const Clock::time_point began = Clock::now();
  auto made = make();
  if (made)
    metrics_.answered(call, Clock::now() - began);
  else
    metrics_.failed(call, made.error());
  return made;
}

Result<Snapshot> MeasuredStore::get(std::span<const std::string> keys,
                                    std::chrono::nanoseconds limit) {
  return measure(StoreMetrics::Call::kGet, [&] { return store_->get(keys, limit); });
}

Result<Snapshot> MeasuredStore::range(std::string_view prefix, std::chrono::nanoseconds limit) {
  return measure(StoreMetrics::Call::kGet, [&] { return store_->range(prefix, limit); });
}

Result<Committed> MeasuredStore::commit(const Transaction& transaction,
                                        std::chrono::nanoseconds limit) {
  const Clock::time_point began = Clock::now();
  auto committed = store_->commit(transaction, limit);
  if (!committed)
    metrics_.failed(StoreMetrics::Call::kCommit, committed.error());
  else if (committed->outcome == Outcome::kUnknown)
    metrics_.outcome_unknown();
  else
    metrics_.answered(StoreMetrics::Call::kCommit, Clock::now() - began);
  return committed;
}

Result<LeaseId> MeasuredStore::grant_lease(std::chrono::seconds lifetime,
                                           std::chrono::nanoseconds limit) {
  return measure(StoreMetrics::Call::kLease, [&] { return store_->grant_lease(lifetime, limit); });
}

Status MeasuredStore::keep_alive(LeaseId lease, std::chrono::nanoseconds limit) {
  return measure(StoreMetrics::Call::kLease, [&] { return store_->keep_alive(lease, limit); });
}

Status MeasuredStore::revoke(LeaseId lease, std::chrono::nanoseconds limit) {
  return measure(StoreMetrics::Call::kLease, [&] { return store_->revoke(lease, limit); });
}

}  // namespace remora::volume
