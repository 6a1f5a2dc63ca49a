#pragma once

/// Memory of removed regions that other processes still hold: a mapping cannot be taken back. Their
/// pages go back to the system, not to the pool, when the last of those processes unmaps them;
/// until then the machine has that much less memory.

#include <cstddef>
#include <cstdint>
#include <vector>

#include <remora/mutex.h>

#include "base/unique_fd.h"

namespace remora::detail {

/// Thread-safe.
class OrphanedMappings {
 public:
  /// At most so many are followed, so that they cannot take all descriptors.
  static constexpr std::size_t kMaxFollowed = 256;

  /// Another open file description of the memfd `fd`, for later questions to the kernel: while the
  /// region's own is there, its mappings cannot be told from those of others. Empty where /proc
  /// does not give it.
  [[nodiscard]] static UniqueFd open_again(int fd) noexcept;
  /// Takes over the memory of a removed region, if another process still holds it. `again`: of
  /// open_again(). Other processes must have got file descriptions of their own, not copies of the
  /// memfd's.
  void add(UniqueFd again, std::uint64_t size_bytes) noexcept;
  /// The bytes that other processes still hold, as the kernel says now. Frees nothing.
  std::uint64_t held_bytes() noexcept;
  /// Memory that no process holds any more. Closing it frees its pages, which takes a second for
  /// many gigabytes: not on a thread that others wait for.
  std::vector<UniqueFd> take_unheld() noexcept;

 private:
  struct OrphanedMapping {
    UniqueFd fd;
    std::uint64_t size_bytes;
    bool unheld = false;
  };
  Mutex mutex_;
  std::vector<OrphanedMapping> all_ REMORA_GUARDED_BY(mutex_);
};

}  // namespace remora::detail
