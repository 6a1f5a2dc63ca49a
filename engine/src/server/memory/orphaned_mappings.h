#pragma once

/// Memory of removed regions that other processes still hold: a mapping cannot be taken back. Their
/// pages are the system's again when the last of them lets go, not the pool's, so the machine has
/// that much less.

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "base/unique_fd.h"

namespace remora::detail {

/// Thread-safe.
class OrphanedMappings {
 public:
  /// More than so many are not followed, so that they cannot take all descriptors.
  static constexpr std::size_t kMost = 256;

  /// Another description of the memfd `fd`, by which later questions are asked: while the region's
  /// own is there, its mappings cannot be told from others'. Empty where /proc does not give it.
  [[nodiscard]] static UniqueFd open_again(int fd) noexcept;
  /// Takes over memory that is nobody's here any more, if somebody elsewhere has it. `again`: of
  /// open_again(). Others must have got descriptions of their own, not copies of the memfd's.
  void add(UniqueFd again, std::uint64_t size_bytes) noexcept;
  /// What others still have, in bytes, as the kernel says now. Frees nothing.
  std::uint64_t held_bytes() noexcept;
  /// What nobody has any more. Closing it frees its pages, a second for many gigabytes: not on a
  /// thread that others wait for.
  std::vector<UniqueFd> take_dead() noexcept;

 private:
  struct OrphanedMapping {
    UniqueFd fd;
    std::uint64_t size_bytes;
    bool dead = false;
  };
  std::mutex mutex_;
  std::vector<OrphanedMapping> all_;
};

}  // namespace remora::detail
