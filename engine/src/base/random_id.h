#pragma once

/// Ids that nothing before them foretells.

#include <cstdint>
#include <sys/random.h>

namespace remora::detail {

/// Random, never 0. Source: getrandom(2).
[[nodiscard]] inline std::uint64_t random_id() noexcept {
  std::uint64_t id = 0;
  while (id == 0)
    if (::getrandom(&id, sizeof id, 0) != sizeof id) id = 0;
  return id;
}

}  // namespace remora::detail
