/// The grants of a session, and their keys.

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/log.h"
#include "transport/rdma/registration_grant.h"
#include "transport/rdma/server_endpoint.h"
#include "transport/rdma/window_grant.h"

namespace remora::transport::rdma {

namespace {

/// The time for all windows of a grant, besides a little for each window; a device needs
/// microseconds.
constexpr std::chrono::seconds kBindTime{2};

/// The extents of a registration whose addresses are those of its memory.
std::vector<WireExtent> extents_where_memory_is(const GrantRequest& request) {
  std::vector<WireExtent> extents;
  extents.reserve(request.extents.size());
  std::uint64_t start_bytes = 0;
  for (const MemoryStretch& stretch : request.extents) {
    extents.push_back({.start_bytes = start_bytes,
                       .length_bytes = stretch.length_bytes,
                       .remote_address = reinterpret_cast<std::uintptr_t>(stretch.address)});
    start_bytes += stretch.length_bytes;
  }
  return extents;
}

}  // namespace

Result<Grant> RdmaServerEndpoint::grant(const GrantRequest& request) noexcept {
  if (const auto rails = this->rails()) return grant_on_rails(*rails, request);
  // Clients reach registrations and windows at the addresses of the memory.
  if (request.address != 0 &&
      request.address != reinterpret_cast<std::uintptr_t>(request.extents.front().address))
    return other_address();
  if (by_windows_) return grant_windows(request);
  const std::shared_ptr<GrantDomain> domain = this->domain();
  if (domain == nullptr) return gone();
  Grant made;
  // The client holds the addresses already, so a registration at other addresses is useless to it.
  if (request.address != 0) made.extents = extents_where_memory_is(request);
  auto registered = std::make_unique<RegistrationGrant>(request);
  if (auto status = registered->register_in(domain, made.extents); !status) {
    give_up(*registered);
    return status.error();
  }
  made.handle = std::move(registered);
  if (renews_keys_) set_lane_keys(made);
  return made;
}

bool RdmaServerEndpoint::registers(const GrantRequest& request) noexcept {
  if (!by_windows_) return true;
  const auto leased = this->leased();
  return leased != nullptr && !leased->covers(request.extents);
}

Result<Grant> RdmaServerEndpoint::grant_windows(const GrantRequest& request) {
  const auto leased = this->leased();
  if (leased == nullptr) return gone();
  auto windows = WindowGrant::create(leased, request);
  if (!windows) return windows.error();
  Grant made;
  made.handle = std::move(*windows);
  if (auto status = renew(made); !status) {
    give_up(*made.handle);
    return status.error();
  }
  return made;
}

void RdmaServerEndpoint::give_up(GrantHandle& refused) noexcept {
  const Status revoked = refused.revoke();
  if (revoked) return;
  log::warn(
      {"grant.not_taken_back", "peer device reason"},
      "rdma: {}: what a refused grant has left on {} cannot be taken back ({}): the lanes end",
      peer_, device_, revoked.error().message());
  if (const auto left = rails()) left->retire();
  end_lanes()();
  end_sharing_sessions();
}

std::shared_ptr<const LeasedMemory> RdmaServerEndpoint::leased() {
  const remora::detail::MutexLock lock{mutex_};
  return leased_;
}

bool RdmaServerEndpoint::registers_again(const Grant& grant) noexcept {
  const GrantHandle* const handle = grant.handle.get();
  if (const auto* const of_rails = dynamic_cast<const RailGrant*>(handle)) {
    const auto rails = this->rails();
    if (rails == nullptr) return false;
    const auto places = places_of_lanes(*rails);
    return !std::all_of(places.begin(), places.end(), [&](const SessionRails::Place& place) {
      return of_rails->is_on(place.domain.device());
    });
  }
  if (const auto* const registered = dynamic_cast<const RegistrationGrant*>(handle)) {
    const auto domain = this->domain();
    return domain != nullptr && !registered->is_in(*domain);
  }
  const auto* const windows = dynamic_cast<const WindowGrant*>(handle);
  const auto leased = this->leased();
  return windows != nullptr && leased != nullptr && windows->leased() != leased &&
         !leased->covers(windows->request().extents);
}

Status RdmaServerEndpoint::renew(Grant& grant) noexcept {
  if (auto* const of_rails = dynamic_cast<RailGrant*>(grant.handle.get())) {
    const auto rails = this->rails();
    return rails == nullptr ? Status{gone()} : renew_on_rails(*rails, *of_rails, grant, false);
  }
  auto* const registered = dynamic_cast<RegistrationGrant*>(grant.handle.get());
  if (registered == nullptr) return renew_windows(grant);
  const std::shared_ptr<GrantDomain> domain = this->domain();
  if (domain == nullptr) return gone();
  // The device has returned, and its former registrations have gone.
  if (!registered->is_in(*domain))
    if (auto status = registered->register_in(domain, grant.extents); !status) return status;
  set_lane_keys(grant);
  return {};
}

Status RdmaServerEndpoint::renew_windows(Grant& grant) {
  auto* windows = dynamic_cast<WindowGrant*>(grant.handle.get());
  if (windows == nullptr) return {};
  const auto leased = this->leased();
  if (leased == nullptr) return gone();
  if (windows->leased() != leased) {
    auto made = WindowGrant::create(leased, windows->request());
    if (!made) return made.error();
    // After an error the grant keeps its registrations, so that revoking it reports the same error.
    if (auto revoked = windows->revoke(); !revoked) return revoked;
    windows = made->get();
    grant.handle = std::move(*made);
  }
  return windows->renew(window_lanes(), grant.extents, grant.lane_keys, deadline_after(kBindTime));
}

void RdmaServerEndpoint::set_lane_keys(Grant& grant) {
  const remora::detail::MutexLock lock{mutex_};
  std::vector<bool> there;
  for (const ServerLane& lane : lanes_) {
    if (there.size() <= lane.number) there.resize(lane.number + 1);
    there[lane.number] = true;
  }
  grant.lane_keys = {.lanes = there.size(), .keys = {}};
  for (const WireExtent& extent : grant.extents)
    for (const bool is_there : there)
      grant.lane_keys.keys.push_back(is_there ? extent.remote_key : 0);
}

}  // namespace remora::transport::rdma
