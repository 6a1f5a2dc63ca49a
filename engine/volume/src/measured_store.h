#pragma once

/// A MetadataStore whose calls have series.

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <remora/volume/metadata_store.h>

#include "store_metrics.h"

namespace remora::volume {

/// Passes each call on, and counts its time or its failure.
class MeasuredStore final : public MetadataStore {
 public:
  MeasuredStore(std::shared_ptr<MetadataStore> store, StoreMetrics metrics)
      : store_{std::move(store)}, metrics_{std::move(metrics)} {}

  Result<Snapshot> get(std::span<const std::string> keys, std::chrono::nanoseconds limit) override;
  Result<Snapshot> range(std::string_view prefix, std::chrono::nanoseconds limit) override;
  Result<Committed> commit(const Transaction& transaction, std::chrono::nanoseconds limit) override;
  Result<LeaseId> grant_lease(std::chrono::seconds lifetime,
                              std::chrono::nanoseconds limit) override;
  Status keep_alive(LeaseId lease, std::chrono::nanoseconds limit) override;
  Status revoke(LeaseId lease, std::chrono::nanoseconds limit) override;
  [[nodiscard]] std::string name() const override { return store_->name(); }

 private:
  template <typename F>
  auto measure(StoreMetrics::Call call, const F& make);

  const std::shared_ptr<MetadataStore> store_;
  const StoreMetrics metrics_;
};

}  // namespace remora::volume
