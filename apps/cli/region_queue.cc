#include "cli/region_queue.h"

#include <utility>

#include "cli/store_queue_of.h"

namespace remora::apps {

std::unique_ptr<StoreQueue> make_region_queue(Queue queue) {
  return std::make_unique<StoreQueueOf<Queue>>(std::move(queue));
}

}  // namespace remora::apps
