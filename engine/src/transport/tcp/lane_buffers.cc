#include "transport/tcp/lane_buffers.h"

#include <new>
#include <utility>

namespace remora::transport::tcp {

using remora::detail::PageBuffer;

LaneBuffers::LaneBuffers() { free_.reserve(kMaxFree); }

PageBuffer LaneBuffers::take() noexcept {
  if (!free_.empty()) {
    PageBuffer taken = std::move(free_.back());
    free_.pop_back();
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
  if (buffer.data() != nullptr && free_.size() < kMaxFree) free_.push_back(std::move(buffer));
}

void LaneBuffers::trim(std::size_t kept) noexcept {
  while (free_.size() > kept) free_.pop_back();
}

}  // namespace remora::transport::tcp
