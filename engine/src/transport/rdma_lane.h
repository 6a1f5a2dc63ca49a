#pragma once

/// The data path of the rdma transport: one queue pair and its completion queue.

#include <cstdint>
#include <functional>
#include <memory>

#include <remora/result.h>
#include <remora/verbs/completion_queue.h>
#include <remora/verbs/memory_region.h>
#include <remora/verbs/queue_pair.h>

#include "transport/transport.h"

namespace remora::transport::rdma {

/// A connected queue pair and its ends, whoever owns it. Both functions are called by any thread,
/// more than once, and never together with a post.
struct LanePair {
  verbs::QueuePair<verbs::Rc>* pair = nullptr;  ///< used until destroy()
  std::function<void()> to_error;
  std::function<void()> destroy;
};

/// `queue`: the pair's send queue completes there; `depth` is what both have room for.
/// Errors: kOutOfMemory, kProvider (the registration for results of atomics).
Result<std::unique_ptr<Lane>> make_lane(LanePair pair, verbs::CompletionQueue queue,
                                        std::uint32_t transfer_bytes_max, std::uint32_t depth);

}  // namespace remora::transport::rdma
