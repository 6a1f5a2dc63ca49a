#pragma once

/// The key of one group, as its writer knows it, and the transactions on it.

#include <chrono>
#include <memory>
#include <string>

#include <remora/result.h>
#include <remora/volume/records.h>

#include "volume_claim.h"

namespace remora::volume::detail {

/// Rules 1 to 3. Each transaction compares the cluster's generation, the volume's value with `w`,
/// and the group's value. After one without a known outcome the key is *frozen*, until thaw() has
/// replaced the value by one with another nonce, or has found that the lost transaction applied.
/// One thread at a time. Each call makes a few requests to the store.
class GroupKey {
 public:
  GroupKey(std::shared_ptr<VolumeClaim> claim, GroupRecord record, std::string value);

  /// The last configuration that is known to be, or to have been, in the store.
  [[nodiscard]] const GroupRecord& record() const noexcept { return record_; }
  [[nodiscard]] bool frozen() const noexcept { return frozen_; }
  [[nodiscard]] VolumeClaim& claim() const noexcept { return *claim_; }

  /// Ok: record() is `next`. Errors: kIndeterminate (frozen now); VolumeClaim::lost_error(); those
  /// of the store (nothing has changed, and nothing will). Only when !frozen().
  Status commit(const GroupRecord& next);
  /// Ends the freeze; record() may be another then. Errors: as commit().
  Status thaw();
  /// Whether the key still has the value of record(), of a writer that is still the volume's: one
  /// linearizable read. Errors: kBusy (it has another value, while frozen); VolumeClaim's; the
  /// store's.
  Status confirm();

 private:
  /// After a refusal: what is there?
  Status read_again();
  [[nodiscard]] Result<Snapshot> read() const;

  const std::shared_ptr<VolumeClaim> claim_;
  const std::string key_;
  GroupRecord record_;
  std::string value_;
  bool frozen_ = false;
};

}  // namespace remora::volume::detail
