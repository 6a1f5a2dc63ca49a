#pragma once

#include <memory>

#include <remora/remora.h>

#include "cli/store_queue.h"

namespace remora::apps {

/// The queue of a region. The loop of `remora bench` for regions is in its source, which is
/// optimised in every build: it is what a user compares.
[[nodiscard]] std::unique_ptr<StoreQueue> make_region_queue(Queue queue);

}  // namespace remora::apps
