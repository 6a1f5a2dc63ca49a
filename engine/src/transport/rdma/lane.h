#pragma once

/// The data path of the rdma transport: one queue pair and its completion queue.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include <remora/result.h>
#include <remora/verbs/completion_queue.h>
#include <remora/verbs/connection.h>
#include <remora/verbs/memory_region.h>
#include <remora/verbs/queue_pair.h>

#include "transport/lane.h"
#include "transport/rails.h"

namespace remora::transport {
class RkeyTable;
}

namespace remora::transport::rdma {

/// A connected queue pair that the lane does not own, and the ways to end it. The functions are
/// called by any thread, more than once, and never together with a post.
struct LanePair {
  verbs::QueuePair<verbs::Rc>* pair = nullptr;  ///< used until destroy() or close_later()
  std::function<void()> to_error;
  std::function<void()> destroy;
  std::function<void()> close_later{};  ///< destroys it later; empty: destroy() does
  /// Drops what a closed lane still has on its device; empty: it is dropped at once.
  std::function<void(std::shared_ptr<void>)> drop_later{};
};

/// Which end of a connection sends requests that are answered: reads and atomics.
enum class Asks : std::uint8_t {
  kNeither,  ///< a control channel
  kClient,   ///< a lane
};

/// Has the connection manager negotiate how many reads and atomics a queue pair keeps in flight:
/// the least of what the asking device can ask and the answering one can answer at once. The other
/// direction, which nothing uses, takes no room on either device. What is beyond the agreed depth
/// waits in the asking device's send queue. iWARP keeps both directions: its devices connect by a
/// read of their own, and some allow no less than one.
void limit_depths(verbs::QueuePairBuilder<verbs::Rc>& builder, Asks asks, bool here_is_client);

/// Logs, at level debug, what the device says was agreed on. `name`: whose connection, for the
/// line.
void log_depths(std::string_view name, const verbs::Connection& connection);

/// `queue`: the pair's send queue completes there; `depth` is what both have room for.
/// `initiator_depth`: as agreed on, for limits().
/// Errors: kOutOfMemory, kProvider (the registration for results of atomics).
Result<std::unique_ptr<Lane>> make_lane(
    LanePair pair, verbs::CompletionQueue queue, std::uint32_t transfer_bytes_max,
    std::uint32_t depth, std::uint32_t initiator_depth = Lane::Limits{}.initiator_depth);

/// As make_lane(), of requests that carry tokens instead of keys: what `keys` has for the lane of
/// that number when they are posted. `lane` < RkeyTable::kMaxLanes.
Result<std::unique_ptr<Lane>> make_token_lane(
    LanePair pair, verbs::CompletionQueue queue, std::uint32_t transfer_bytes_max,
    std::uint32_t depth, std::shared_ptr<const RkeyTable> keys, std::size_t lane,
    std::uint32_t initiator_depth = Lane::Limits{}.initiator_depth);

/// Writes up to here go inline on lanes of a session with several devices, which are alike whatever
/// their devices can do: an operation is checked for all of them. A device that gives less is no
/// rail.
inline constexpr std::uint32_t kRailInlineBytes = 48;

/// What a lane of a session with several devices looks up when it posts.
struct RailKeys {
  std::shared_ptr<const RkeyTable> remote;  ///< by token and lane
  std::size_t lane = 0;
  std::shared_ptr<const RkeyTable> local;  ///< by token and column of the lane's device
  std::size_t column = 0;
};

/// As make_token_lane(), of requests whose local keys are tokens, too.
Result<std::unique_ptr<Lane>> make_rail_lane(
    LanePair pair, verbs::CompletionQueue queue, std::uint32_t transfer_bytes_max,
    std::uint32_t depth, RailKeys keys, std::shared_ptr<const LaneRail> rail,
    std::uint32_t initiator_depth = Lane::Limits{}.initiator_depth);

}  // namespace remora::transport::rdma
