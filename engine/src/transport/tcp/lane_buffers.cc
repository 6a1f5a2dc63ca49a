#include "transport/tcp/lane_buffers.h"

#include <new>
#include <utility>

#include <remora/sanitizers.h>

#if REMORA_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#endif

namespace remora::transport::tcp {

using remora::detail::PageBuffer;

namespace {

/// AddressSanitizer then reports a lane that uses a buffer which it has put back.
void forbid_use([[maybe_unused]] const PageBuffer& buffer) noexcept {
#if REMORA_ADDRESS_SANITIZER
  __asan_poison_memory_region(buffer.data(), buffer.size());
#endif
}
void allow_use([[maybe_unused]] const PageBuffer& buffer) noexcept {
#if REMORA_ADDRESS_SANITIZER
  __asan_unpoison_memory_region(buffer.data(), buffer.size());
#endif
}

}  // namespace

LaneBuffers::LaneBuffers() { free_.reserve(kMaxFree); }

PageBuffer LaneBuffers::take() noexcept {
  if (!free_.empty()) {
    PageBuffer taken = std::move(free_.back());
    free_.pop_back();
    allow_use(taken);
    return taken;
  }
  try {
    PageBuffer taken{kBytes};
    ++made_;
    return taken;
  } catch (const std::bad_alloc&) {
    return {};
  }
}

void LaneBuffers::put_back(PageBuffer buffer) noexcept {
  if (buffer.data() == nullptr || free_.size() == kMaxFree) return;
  forbid_use(buffer);
  free_.push_back(std::move(buffer));
}

void LaneBuffers::trim(std::size_t kept) noexcept {
  while (free_.size() > kept) free_.pop_back();
}

}  // namespace remora::transport::tcp
