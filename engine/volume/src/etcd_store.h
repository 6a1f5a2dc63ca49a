#pragma once

/// A MetadataStore in etcd (3.4 or later).

#include <chrono>
#include <string>
#include <vector>

#include <remora/volume/metadata_store.h>
#include <remora/volume/open_store.h>

#include "etcd_gateway.h"

namespace remora::volume {

/// Over etcd's v3 JSON gateway. Reads are linearizable, which is etcd's default; a long range is
/// read in pages of one revision. A transaction goes to one endpoint, on a connection of its own,
/// and is never sent twice.
class EtcdStore final : public MetadataStore {
 public:
  EtcdStore(std::vector<std::string> endpoints, StoreOptions options)
      : gateway_{std::move(endpoints), std::move(options)} {}

  Result<Snapshot> get(std::span<const std::string> keys, std::chrono::nanoseconds limit) override;
  Result<Snapshot> range(std::string_view prefix, std::chrono::nanoseconds limit) override;
  Result<Committed> commit(const Transaction& transaction, std::chrono::nanoseconds limit) override;
  Result<LeaseId> grant_lease(std::chrono::seconds lifetime,
                              std::chrono::nanoseconds limit) override;
  Status keep_alive(LeaseId lease, std::chrono::nanoseconds limit) override;
  Status revoke(LeaseId lease, std::chrono::nanoseconds limit) override;
  [[nodiscard]] std::string name() const override;

 private:
  EtcdGateway gateway_;
};

}  // namespace remora::volume
