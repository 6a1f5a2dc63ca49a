#include "client/session/session_lanes.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <sched.h>
#include <utility>

#include <remora/assert.h>

#include "client/datapath/mapped_memory_driver.h"
#include "client/datapath/queued_lane_driver.h"
#include "client/services/engine_services.h"
#include "client/session/session_core.h"
#include "transport/connection_rails.h"

namespace remora::detail {

using transport::Lane;
using transport::Notice;

namespace {
/// Time for all lanes of an interrupted session together. The server gives lanes whose neighbour
/// has ended more time than that (RdmaServerEndpoint::keeps_back()).
constexpr std::chrono::milliseconds kHoldTime{250};

/// The memory node on which this thread ran when it first called this; -1: not known. It stays the
/// same, since a thread that moves must keep its lane: with rails its reads surely see its writes
/// only on one lane.
int thread_node() noexcept {
  thread_local const int t_node = [] {
    unsigned processor = 0;
    unsigned node = 0;
    return ::getcpu(&processor, &node) == 0 ? static_cast<int>(node) : -1;
  }();
  return t_node;
}
}  // namespace

std::size_t SessionLanes::thread_number() noexcept {
  static std::atomic<std::size_t> threads{0};
  thread_local const std::size_t t_number = threads.fetch_add(1, std::memory_order_relaxed);
  return t_number;
}

SessionLanes::SessionLanes(SessionCore& session)
    : session_{session}, ender_{[&session] { return session.weak_from_this().lock(); }} {}

LaneDriver::BrokenHandler SessionLanes::broken_handler() {
  // The driver does not live longer than the session, so the handler needs no reference of its own.
  return [this] { session_.on_lane_broken(); };
}

Status SessionLanes::add(std::unique_ptr<LaneDriver> driver) {
  LaneDriver& kept = *driver;
  {
    const MutexLock lock{opening_};
    REMORA_ASSERT(lanes_.size() < kMaxLanes, "a session has kMaxLanes lanes at most");
    lanes_.push_back(std::move(driver));
  }
  if (session_.connected()) return {};
  // The session ended before this lane was in the list, so nothing has failed the lane.
  kept.fail(session_.lost_reason());
  return Error{Code::kConnectionLost, "lane"}.with_reason(session_.lost_reason());
}

Status SessionLanes::open(Deadline deadline) {
  EngineServices& engine = session_.engine();
  const ClientMetrics& metrics = session_.metrics();
  {
    const MutexLock lock{opening_};
    lanes_.reserve(kMaxLanes);
  }
  const auto endpoint = session_.channel().endpoint();
  // Mapped memory needs one driver, whatever EngineOptions::lanes says.
  if (auto path = endpoint->direct_path())
    return add(std::make_unique<MappedMemoryDriver>(
        std::move(*path), engine.parallel_copy(), metrics, broken_handler(),
        [this](const Notice& notice, Deadline until) { return session_.notify(notice, until); },
        [this](const OperationRecord& operation) { return session_.await_return(operation); },
        [this](const OperationRecord& operation) { return session_.check_return(operation); }));
  QueuedLaneDriver::Options options{
      .spin = engine.options().spin, .bounce = nullptr, .zeroes = nullptr};
  options.why_refused = [this](const OperationRecord& operation) {
    return session_.revocations().why_refused(operation);
  };
  options.revoked = [this](const OperationRecord& operation) {
    return session_.revocations().revoked(operation);
  };
  if (const auto& domain = session_.domain(); domain != nullptr) {
    auto index = engine.memory().intern(domain, session_.loop());
    if (!index) return index.error();
    auto bounce = engine.memory().bounce_store(*domain, *index);
    if (!bounce) return bounce.error();
    options.domain_index = *index;
    options.needs_keys = true;
    options.bounce = std::move(*bounce);
    auto zeroes = engine.memory().zeroes(*domain, *index);
    if (!zeroes) return zeroes.error();
    options.zeroes = std::move(*zeroes);
    options.cache = engine.memory().registration_cache(*index);
    options.cache_from_bytes = engine.options().mr_cache_from_bytes;
  }
  options.revivable = session_.handshake().resumable();
  options.end_elsewhere = [this](QueuedLaneDriver& lane) { return ender_.end_later(lane); };
  transport::ConnectionRails* const rails = endpoint->rails();
  on_rails_ = rails != nullptr;
  const std::size_t devices = rails == nullptr ? 1 : rails->find_rails(deadline);
  const std::size_t count = std::max<std::size_t>(engine.options().lanes, devices);
  for (std::size_t i = 0; i < count; ++i) {
    auto lane =
        endpoint->open_lane(session_.handshake().ticket(), engine.options().lane_depth, deadline);
    if (!lane) return lane.error();
    const std::uint32_t reads_in_flight = (*lane)->limits().initiator_depth;
    reads_ = reads_ && reads_in_flight != 0;
    few_reads_ = few_reads_ || (count > 1 && !on_rails_ && reads_in_flight <= kFewReads);
    auto driver =
        std::make_unique<QueuedLaneDriver>(std::move(*lane), options, metrics, broken_handler());
    if (auto status = add(std::move(driver)); !status) return status;
  }
  return {};
}

Result<std::vector<std::unique_ptr<Lane>>> SessionLanes::open_again(Deadline deadline) {
  std::vector<std::unique_ptr<Lane>> lanes;
  const auto endpoint = session_.channel().endpoint();
  if (endpoint->direct_path()) return lanes;
  if (transport::ConnectionRails* const rails = endpoint->rails())
    (void)rails->find_rails(deadline);
  for (std::size_t i = 0; i < all().size(); ++i) {
    auto lane = endpoint->open_lane(session_.handshake().ticket(),
                                    session_.engine().options().lane_depth, deadline);
    if (!lane) {
      // These lanes are unused. Closing them here could block as long as the device takes, and the
      // destructor of the session waits for this thread.
      for (const auto& made : lanes) made->close_later();
      return lane.error();
    }
    lanes.push_back(std::move(*lane));
  }
  return lanes;
}

bool SessionLanes::replace(std::vector<std::unique_ptr<Lane>> lanes) noexcept {
  bool fit = true;
  for (std::size_t i = 0; i < all().size(); ++i)
    fit = all()[i]->replace(i < lanes.size() ? std::move(lanes[i]) : nullptr) && fit;
  return fit;
}

/// The lanes that are open; the other elements are null.
std::array<LaneDriver*, kMaxLanes> SessionLanes::opened_lanes() const noexcept {
  const MutexLock lock{opening_};
  std::array<LaneDriver*, kMaxLanes> opened{};
  std::transform(lanes_.begin(), lanes_.end(), opened.begin(),
                 [](const auto& lane) { return lane.get(); });
  return opened;
}

bool SessionLanes::any_broken() const noexcept {
  const MutexLock lock{opening_};
  return std::any_of(lanes_.begin(), lanes_.end(), [](const auto& lane) { return lane->broken(); });
}

bool SessionLanes::any_breaking() const noexcept {
  const MutexLock lock{opening_};
  return std::any_of(lanes_.begin(), lanes_.end(),
                     [](const auto& lane) { return lane->breaking(); });
}

LaneFault SessionLanes::fault() const noexcept {
  const MutexLock lock{opening_};
  for (const auto& lane : lanes_)
    if (const LaneFault fault = lane->fault(); fault != LaneFault::kNone) return fault;
  return LaneFault::kNone;
}

std::span<const std::unique_ptr<LaneDriver>> SessionLanes::lanes_for(Use use) const noexcept {
  const std::span<const std::unique_ptr<LaneDriver>> lanes{all()};
  if (!parted()) return lanes;
  const std::size_t for_writes = lanes.size() / 2;
  return use == Use::kWrites ? lanes.last(for_writes) : lanes.first(lanes.size() - for_writes);
}

LaneDriver& SessionLanes::next(Use use, std::uint32_t atomics_on) noexcept {
  auto& queues = queues_[parted() && use == Use::kWrites ? 1 : 0];
  const std::size_t turn = queues.fetch_add(1, std::memory_order_relaxed);
  if (atomics_on != 0) {
    for (std::size_t i = 0; i < all().size(); ++i)
      if (LaneDriver& lane = *all()[(turn + i) % all().size()]; lane.home_device() == atomics_on)
        return lane;
  }
  const auto lanes = lanes_for(use);
  return *lanes[turn % lanes.size()];
}

/// Lanes on the device of the thread's memory node, one after another for the threads; all lanes if
/// there is no such device.
LaneDriver& SessionLanes::near_thread() const noexcept {
  const int node = thread_node();
  std::array<LaneDriver*, kMaxLanes> near{};
  std::size_t count = 0;
  for (const auto& lane : all())
    if (node >= 0 && lane->memory_node() == node) near[count++] = lane.get();
  return count == 0 ? *all()[thread_number() % all().size()] : *near[thread_number() % count];
}

LaneDriver* SessionLanes::leading_to(std::uint32_t server_device) const noexcept {
  const auto stays = [&](const LaneDriver& lane) {
    return lane.server_device() == server_device && lane.home_device() == server_device;
  };
  if (LaneDriver& own = of_thread(Use::kReads); stays(own)) return &own;
  LaneDriver* found = nullptr;
  for (const auto& lane : all()) {
    if (stays(*lane)) return lane.get();
    if (lane->server_device() == server_device) found = lane.get();
  }
  return found;
}

bool SessionLanes::hold(Deadline until) noexcept {
  std::size_t held = 0;
  while (held < all().size() && all()[held]->hold(until)) ++held;
  if (held == all().size()) return true;
  while (held > 0) all()[--held]->release_hold();
  return false;
}

/// First moves all lanes to the error state, so that they flush at the same time.
void SessionLanes::interrupt(Reason reason, LaneFault fault) noexcept {
  for (const auto& lane : all()) lane->blame(fault);
  if (on_rails_)
    // A lane on the device that has failed, and is not known to be broken, uses only its part of
    // the time.
    for (const auto& lane : all())
      (void)lane->hold(Clock::now() + kHoldTime / static_cast<int>(all().size()));
  for (const auto& lane : all()) lane->move_to_error();
  for (const auto& lane : all()) lane->interrupt(reason);
}

void SessionLanes::fail(Reason reason, LaneFault fault) noexcept {
  const auto lanes = opened_lanes();
  for (LaneDriver* const lane : lanes)
    if (lane != nullptr) lane->blame(fault);
  for (LaneDriver* const lane : lanes)
    if (lane != nullptr) lane->move_to_error();
  for (LaneDriver* const lane : lanes)
    if (lane != nullptr) lane->fail(reason);
}

void SessionLanes::close() noexcept {
  ender_.stop();
  std::vector<std::unique_ptr<LaneDriver>> lanes;
  const MutexLock lock{opening_};
  lanes.swap(lanes_);
  // The drivers are destroyed without the lock, since they end their operations.
}

}  // namespace remora::detail
