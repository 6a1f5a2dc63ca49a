#include "server/memory_return.h"

#include <algorithm>

namespace remora::apps {

void MemoryReturn::look(std::uint64_t sessions) {
  const bool quiet = std::exchange(last_, sessions) == sessions;
  max_sessions_ = std::max(max_sessions_, sessions);
  if (!quiet) return;
  if (max_sessions_ - sessions >= std::max(kMinLeft, max_sessions_ / 4)) {
    max_sessions_ = sessions;
    looks_left_ = kLooks;
  }
  if (looks_left_ == 0) return;
  --looks_left_;
  trim_();
}

}  // namespace remora::apps
