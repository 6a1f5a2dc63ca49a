#include "kept_queues.h"

#include "volume_queue_core.h"

namespace remora::volume::detail {

KeptQueues::~KeptQueues() {
  while (take() != nullptr) {
  }
}

std::unique_ptr<VolumeQueueCore> KeptQueues::take() noexcept {
  for (std::atomic<VolumeQueueCore*>& place : places_) {
    if (place.load(std::memory_order_relaxed) == nullptr) continue;
    std::unique_ptr<VolumeQueueCore> queue{place.exchange(nullptr, std::memory_order_acquire)};
    if (queue != nullptr) return queue;
  }
  return nullptr;
}

void KeptQueues::put(std::unique_ptr<VolumeQueueCore> queue) noexcept {
  for (std::atomic<VolumeQueueCore*>& place : places_) {
    VolumeQueueCore* none = nullptr;
    if (place.compare_exchange_strong(none, queue.get(), std::memory_order_release,
                                      std::memory_order_relaxed)) {
      static_cast<void>(queue.release());
      return;
    }
  }
}

}  // namespace remora::volume::detail
