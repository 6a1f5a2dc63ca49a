#include "client/datapath/many_batches.h"

#include <memory>
#include <new>

namespace remora::detail {

ManyBatches::~ManyBatches() {
  for (std::atomic<ManyBatch*>& place : kept_) delete place.load();
}

std::unique_ptr<ManyBatch> ManyBatches::take(const LaneDriver& lane) noexcept {
  for (std::atomic<ManyBatch*>& place : kept_)
    if (place.load(std::memory_order_relaxed) != nullptr)
      if (ManyBatch* const kept = place.exchange(nullptr, std::memory_order_acquire);
          kept != nullptr)
        return std::unique_ptr<ManyBatch>{kept};
  try {
    return std::make_unique<ManyBatch>(lane);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void ManyBatches::give_back(std::unique_ptr<ManyBatch> batch) noexcept {
  for (std::atomic<ManyBatch*>& place : kept_) {
    ManyBatch* none = nullptr;
    if (!place.compare_exchange_strong(none, batch.get(), std::memory_order_release,
                                       std::memory_order_relaxed))
      continue;
    (void)batch.release();  // kept_ owns it now
    return;
  }
}

}  // namespace remora::detail
