/// The differences of a session with rails: its lanes use several devices, its grants are
/// registered with each of them, and when one lane ends the others continue for some time.

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "transport/rdma/server_endpoint.h"

namespace remora::transport::rdma {

bool RdmaServerEndpoint::use_rails() noexcept {
  const remora::detail::MutexLock lock{mutex_};
  if (!renews_keys_ || rails_ != nullptr || !kept_back_timer_.open() ||
      !events_.add(kept_back_timer_.get()))
    return false;
  by_windows_ = false;
  rails_ = std::make_shared<SessionRails>();
  return true;
}

std::shared_ptr<SessionRails> RdmaServerEndpoint::rails() {
  const remora::detail::MutexLock lock{mutex_};
  return rails_;
}

bool RdmaServerEndpoint::keeps_back() noexcept {
  // Longer than a client waits for its lanes to complete (SessionLanes::interrupt()).
  constexpr std::chrono::milliseconds kTime{500};
  if (rails_ == nullptr || over_) return false;
  if (!kept_back_until_) {
    kept_back_until_ = Clock::now() + kTime;
    kept_back_timer_.set(*kept_back_until_);
    // By this a client that has not noticed the failure learns of it. Otherwise the end of that
    // time would break healthy lanes with posted operations.
    if (channel_) (void)channel_->connection.disconnect();
  }
  if (Clock::now() < *kept_back_until_) return true;
  kept_back_timer_.take();
  return false;
}

void RdmaServerEndpoint::end_given_up(std::uint32_t number) noexcept {
  std::vector<ServerLane> kept;
  for (ServerLane& lane : lanes_) {
    if (lane.number != number) {
      kept.push_back(std::move(lane));
      continue;
    }
    if (!lane.connection->queue_pair().to_error()) lanes_may_serve_.store(true);
    if (lane.watched) {
      events_.remove(lane.queue.event_fd());
      events_.remove(lane.connection->event_fd());
    }
    dead_.push_back(std::move(lane));
  }
  lanes_.swap(kept);
}

Result<verbs::ProtectionDomain> RdmaServerEndpoint::lane_domain(const verbs::Device& device,
                                                                const GrantBudgets& budgets) {
  if (rails_ != nullptr) {
    auto place = rails_->place_on(device, budgets.registrations == nullptr
                                              ? GrantBudgets{.registrations = budget_}
                                              : budgets);
    if (!place) return place.error();
    return place->domain;
  }
  if (by_windows_) return leased_->domain();
  return domain_->domain();
}

Result<Grant> RdmaServerEndpoint::grant_on_rails(SessionRails& rails, const GrantRequest& request) {
  const std::uint64_t move =
      request.address == 0 ? rails.next_move() : rails.keep_move(request).value_or(0);
  if (move == 0) return other_address();
  auto handle = std::make_unique<RailGrant>(request, move);
  Grant made;
  // The registrations that the client already holds stay, even if the memory is registered with
  // some devices only.
  const bool everywhere = request.address == 0;
  if (auto status = renew_on_rails(rails, *handle, made, everywhere); !status) {
    give_up(*handle);
    return status.error();
  }
  made.handle = std::move(handle);
  return made;
}

std::vector<SessionRails::Place> RdmaServerEndpoint::places_of_lanes(const SessionRails& rails) {
  auto places = rails.places();
  const remora::detail::MutexLock lock{mutex_};
  std::erase_if(places, [&](const SessionRails::Place& place) {
    mutex_.assert_held();
    return std::none_of(lanes_.begin(), lanes_.end(), [&](const ServerLane& lane) {
      return lane.connection->device() == place.domain.device();
    });
  });
  return places;
}

Status RdmaServerEndpoint::renew_on_rails(SessionRails& rails, RailGrant& handle, Grant& grant,
                                          bool everywhere) {
  handle.leave_device();
  Status failed;
  bool any = false;
  for (const SessionRails::Place& place : places_of_lanes(rails)) {
    const auto status = handle.register_on(place);
    any = any || status.ok();
    if (status) continue;
    if (everywhere) return status;
    failed = status;
  }
  if (!failed && !any) return failed;
  grant.extents = handle.extents();
  const remora::detail::MutexLock lock{mutex_};
  std::vector<verbs::Device> device_of;  // by number of the lane; empty: no such lane
  for (const ServerLane& lane : lanes_) {
    if (device_of.size() <= lane.number) device_of.resize(lane.number + 1);
    device_of[lane.number] = lane.connection->queue_pair().domain().device();
  }
  grant.lane_keys = {.lanes = device_of.size(), .keys = {}};
  for (std::size_t extent = 0; extent < grant.extents.size(); ++extent)
    for (const verbs::Device& device : device_of)
      grant.lane_keys.keys.push_back(device.empty() ? 0 : handle.key_on(device, extent));
  return {};
}

bool RdmaServerEndpoint::hit_on_rails(const DeviceFailure& failure) noexcept {
  const auto is_of = [&](const verbs::Connection& connection) {
    return connection.device().name() == failure.device &&
           (failure.queue_pair == 0 || connection.queue_pair().number() == failure.queue_pair);
  };
  // A device has gone: its sessions release their registrations there.
  if (failure.queue_pair == 0 && failure.queue == nullptr && rails_->any_gone())
    return lanes_.empty() || !keeps_back();
  const bool hit = (failure.queue == nullptr && channel_ && is_of(channel_->connection)) ||
                   std::any_of(lanes_.begin(), lanes_.end(), [&](const ServerLane& lane) {
                     return failure.queue != nullptr ? lane.queue.raw() == failure.queue
                                                     : is_of(*lane.connection);
                   });
  return hit && !keeps_back();
}

}  // namespace remora::transport::rdma
