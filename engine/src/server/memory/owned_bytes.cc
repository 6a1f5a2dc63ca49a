#include "server/memory/owned_bytes.h"

#include <remora/assert.h>

namespace remora::detail {

void OwnedBytes::add(std::string_view owner, std::int64_t change_bytes) {
  const MutexLock lock{mutex_};
  const auto found = bytes_.try_emplace(std::string{owner}, 0).first;
  found->second += change_bytes;
  REMORA_ASSERT(found->second >= 0, "an owner gives back no more of the pool than it took");
  if (found->second == 0) bytes_.erase(found);
}

std::uint64_t OwnedBytes::of(std::string_view owner) const {
  const MutexLock lock{mutex_};
  const auto found = bytes_.find(owner);
  return found == bytes_.end() ? 0 : static_cast<std::uint64_t>(found->second);
}

}  // namespace remora::detail
