#pragma once

/// The grant of a Lock, and its replacement.

#include <cstdint>
#include <memory>

#include <remora/engine/region.h>
#include <remora/engine/uri.h>
#include <remora/mutex.h>
#include <remora/result.h>

#include "base/clock.h"

namespace remora::detail {

class EngineServices;
class RegionGrant;
class RegionOpener;
enum class Opening : std::uint8_t;

/// The grant of a Lock. All copies of the Lock and all locks acquired by them share it, so that a
/// fenced grant is replaced once, and not by each acquisition. Thread-safe.
class LockGrant {
 public:
  explicit LockGrant(const Region& region);
  [[nodiscard]] std::shared_ptr<RegionGrant> current() const;
  /// The grant that replaces `unusable`. One thread at a time asks the server for it; the others
  /// wait for its answer. Errors: as RegionOpener::open_again(); kTimedOut.
  Result<std::shared_ptr<RegionGrant>> replace(const std::shared_ptr<RegionGrant>& unusable,
                                               Deadline deadline);
  /// A new grant, after all older ones were revoked.
  Result<std::shared_ptr<RegionGrant>> fence();

  // Lock and Region call these, since their grants are private.
  /// `region` has a grant.
  [[nodiscard]] static const std::shared_ptr<RegionGrant>& core_of(const Region& region) noexcept {
    return region.core_.pointer();
  }
  [[nodiscard]] static const OwnedShared<RegionGrant>& owned_by(const Region& region) noexcept {
    return region.core_;
  }

 private:
  Result<std::shared_ptr<RegionGrant>> open(const std::shared_ptr<RegionGrant>& like,
                                            Opening opening, Deadline deadline) const;

  // Declared before current_, so that it is destroyed after it.
  const std::shared_ptr<EngineServices> engine_;
  RegionOpener& opener_;  ///< lives as long as engine_
  const Uri uri_;
  mutable Mutex mutex_;
  Condition opened_;
  bool opening_ REMORA_GUARDED_BY(mutex_) = false;  ///< a thread asks the server
  std::shared_ptr<RegionGrant> current_ REMORA_GUARDED_BY(mutex_);
};

}  // namespace remora::detail
