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

/// A connected queue pair that the lane does not own, and the functions that end it. Any thread
/// calls these functions, also repeatedly, but never during a post.
struct LanePair {
  verbs::QueuePair<verbs::Rc>* pair = nullptr;  ///< used until destroy() or close_later()
  std::function<void()> to_error;
  std::function<void()> destroy;
  std::function<void()> close_later{};  ///< destroys it later; empty: call destroy()
  /// Destroys, later, the objects of a closed lane on its device; empty: they are destroyed at
  /// once.
  std::function<void(std::shared_ptr<void>)> drop_later{};
};

/// The end of a connection that sends requests with answers: reads and atomics.
enum class Asks : std::uint8_t {
  kNeither,  ///< a control channel
  kClient,   ///< a lane
};

/// Has the connection manager negotiate how many reads and atomics a queue pair keeps in flight:
/// the smaller of the numbers that the requesting device can send and the answering device can
/// answer at once. The other direction, which is unused, takes no room on either device. Requests
/// beyond the agreed depth wait in the requesting device's send queue. iWARP keeps both directions:
/// its devices connect by a read of their own, and some require a depth of at least 1.
void limit_depths(verbs::QueuePairBuilder<verbs::Rc>& builder, Asks asks, bool here_is_client);

/// Logs, at level debug, the depths that the device reports as agreed. `name`: the owner of the
/// connection, for the line.
void log_depths(std::string_view name, const verbs::Connection& connection);

/// `queue`: the completion queue of the pair's send queue; `depth`: the room of both.
/// `initiator_depth`: as agreed, for limits().
/// Errors: kOutOfMemory, kProvider (the registration for results of atomics).
Result<std::unique_ptr<Lane>> make_lane(
    LanePair pair, verbs::CompletionQueue queue, std::uint32_t transfer_bytes_max,
    std::uint32_t depth, std::uint32_t initiator_depth = Lane::Limits{}.initiator_depth);

/// As make_lane(), for requests that carry tokens instead of keys: when a request is posted, the
/// lane looks up the key in `keys`, for the number `lane` < RkeyTable::kMaxLanes.
Result<std::unique_ptr<Lane>> make_token_lane(
    LanePair pair, verbs::CompletionQueue queue, std::uint32_t transfer_bytes_max,
    std::uint32_t depth, std::shared_ptr<const RkeyTable> keys, std::size_t lane,
    std::uint32_t initiator_depth = Lane::Limits{}.initiator_depth);

/// Writes up to this length go inline on lanes of a session with several devices. All such lanes
/// have the same limit, since an operation is checked for all of them. A device with less inline
/// room is no rail.
inline constexpr std::uint32_t kRailInlineBytes = 48;

/// The tables in which a lane of a session with several devices looks up keys when it posts.
struct RailKeys {
  std::shared_ptr<const RkeyTable> remote;  ///< by token and lane
  std::size_t lane = 0;
  std::shared_ptr<const RkeyTable> local;  ///< by token and column of the lane's device
  std::size_t column = 0;
};

/// As make_token_lane(), for requests whose local keys are tokens, too.
Result<std::unique_ptr<Lane>> make_rail_lane(
    LanePair pair, verbs::CompletionQueue queue, std::uint32_t transfer_bytes_max,
    std::uint32_t depth, RailKeys keys, std::shared_ptr<const LaneRail> rail,
    std::uint32_t initiator_depth = Lane::Limits{}.initiator_depth);

}  // namespace remora::transport::rdma
