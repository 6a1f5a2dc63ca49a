#pragma once

/// Memory of removed regions that other processes still have mapped: the server cannot undo a
/// mapping. The pages go back to the system, not to the pool, when the last of those processes
/// unmaps them; until then the machine has that much less memory.

#include <cstddef>
#include <cstdint>
#include <vector>

#include <remora/mutex.h>

#include "base/unique_fd.h"

namespace remora::detail {

/// Thread-safe.
class OrphanedMappings {
 public:
  /// The most mappings that are followed, so that they do not use all descriptors.
  static constexpr std::size_t kMaxFollowed = 256;

  /// Another open file description of the memfd `fd`, for later questions to the kernel: while the
  /// region's own description exists, its mappings cannot be distinguished from those of other
  /// processes. Empty if /proc does not give it.
  [[nodiscard]] static UniqueFd open_again(int fd) noexcept;
  /// Takes over the memory of a removed region if another process still has it mapped. `again`: the
  /// result of open_again(). Other processes must have file descriptions of their own, not copies
  /// of the memfd's.
  void add(UniqueFd again, std::uint64_t size_bytes) noexcept;
  /// The bytes that other processes still have mapped, as the kernel reports now. Frees nothing.
  std::uint64_t held_bytes() noexcept;
  /// Memory that no process has mapped any more. Closing it frees its pages, which takes a second
  /// for many gigabytes: not on a thread for which others wait.
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
