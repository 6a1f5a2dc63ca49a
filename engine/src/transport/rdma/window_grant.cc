#include "transport/rdma/window_grant.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <remora/verbs/device.h>

#include "transport/rdma/remote_access.h"

namespace remora::transport::rdma {

namespace {

using verbs::Access;

/// The time for each window, beyond the time that a device may take for any number of them, so that
/// a grant with very many windows completes.
constexpr std::chrono::milliseconds kWindowTime{1};

/// The length limit of a window: that of a piece of the pool; common NICs refuse more than 2 GiB.
constexpr std::uint64_t kMaxWindowBytes = std::uint64_t{1} << 30U;

}  // namespace

Result<std::unique_ptr<WindowGrant>> WindowGrant::create(std::shared_ptr<const LeasedMemory> leased,
                                                         const GrantRequest& request) {
  const Access rights = remote_access(request.rights, leased->domain().device());
  std::unique_ptr<WindowGrant> made{new WindowGrant{std::move(leased), request, rights}};
  const LeasedMemory& memory = *made->leased_;
  const auto is_own = [&](const MemoryStretch& stretch) { return !memory.find(stretch); };
  const auto own = static_cast<std::size_t>(
      std::count_if(request.extents.begin(), request.extents.end(), is_own));
  if (own != 0) {
    auto share = BudgetShare::take(memory.budgets().registrations, own);
    if (!share) return share.error();
    made->own_share_.emplace(std::move(*share));
  }
  if (own != 0 && memory.budgets().bytes != nullptr) {
    std::uint64_t own_bytes = 0;
    for (const MemoryStretch& stretch : request.extents)
      if (is_own(stretch)) own_bytes += stretch.length_bytes;
    auto share = BudgetShare::take(memory.budgets().bytes, own_bytes);
    if (!share) return share.error();
    made->own_bytes_share_.emplace(std::move(*share));
  }
  made->own_.reserve(own);  // pointers to the elements stay valid
  for (const MemoryStretch& stretch : request.extents) {
    if (const auto found = memory.find(stretch)) {
      made->stretches_.push_back(*found);
      continue;
    }
    auto registered = memory.domain().register_bytes({stretch.address, stretch.length_bytes},
                                                     LeasedMemory::kAccess);
    if (!registered) return registered.error();
    made->own_.push_back(std::move(*registered));
    for (std::uint64_t at = 0; at < stretch.length_bytes; at += kMaxWindowBytes)
      made->stretches_.push_back(
          {&made->own_.back(), at, std::min(kMaxWindowBytes, stretch.length_bytes - at)});
  }
  return made;
}

WindowGrant::~WindowGrant() { (void)forget_lanes_but({}); }

void WindowGrant::leave_device() noexcept {
  (void)forget_lanes_but({});  // a device that has gone executes no request
  stretches_.clear();
  own_.clear();
  own_share_.reset();
  own_bytes_share_.reset();
  share_.reset();
  lanes_admitted_ = 0;
  leased_.reset();
}

/// Drops the grant's windows on all lanes but `lanes`, even on lanes that have ended. A lane that
/// may still serve a window stays in the list, so that the next call tries it again.
Status WindowGrant::forget_lanes_but(const WindowLanes& lanes) noexcept {
  Status status;
  std::erase_if(lanes_, [&](const std::weak_ptr<WindowLane>& known) {
    const auto lane = known.lock();
    if (lane == nullptr || std::find(lanes.begin(), lanes.end(), lane) != lanes.end()) return true;
    const Status dropped = lane->drop(this);
    if (!dropped) status = dropped;
    return dropped.ok();
  });
  return status;
}

/// Reserves before the device is asked, so that one client leaves room for others.
Status WindowGrant::reserve(std::size_t lanes) {
  if (lanes <= lanes_admitted_) return {};
  const std::uint64_t more = std::uint64_t{lanes - lanes_admitted_} * stretches_.size();
  auto share = BudgetShare::take(leased_->budgets().windows, more);
  if (!share) return share.error();
  if (share_)
    share_->join(std::move(*share));
  else
    share_.emplace(std::move(*share));
  lanes_admitted_ = lanes;
  return {};
}

Status WindowGrant::renew(const WindowLanes& lanes, std::vector<WireExtent>& extents,
                          LaneKeys& keys, Deadline deadline) {
  (void)forget_lanes_but(lanes);  // revoke() tries again
  std::size_t all = 0;
  std::size_t without = 0;
  for (const auto& lane : lanes) {
    if (lane == nullptr) continue;
    lanes_.emplace_back(lane);
    ++all;
    if (!lane->has(this)) ++without;
  }
  if (auto status = reserve(all); !status) return status;
  deadline += kWindowTime * (without * stretches_.size());
  LaneKeys made{.lanes = lanes.size(), .keys = {}};
  made.keys.resize(stretches_.size() * lanes.size());
  for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
    if (lanes[lane] == nullptr) continue;
    const auto bound = lanes[lane]->bind(this, stretches_, rights_, deadline);
    if (!bound) return bound.error();
    for (std::size_t i = 0; i < bound->size(); ++i)
      made.keys[i * lanes.size() + lane] = (*bound)[i];
  }
  keys = std::move(made);
  extents.resize(stretches_.size());
  std::uint64_t start = 0;
  for (std::size_t i = 0; i < stretches_.size(); ++i) {
    extents[i] = {.start_bytes = start,
                  .length_bytes = stretches_[i].length_bytes,
                  .remote_address = stretches_[i].address(),
                  .remote_key = lanes.empty() ? 0 : keys.keys[i * lanes.size()]};
    start += stretches_[i].length_bytes;
  }
  return {};
}

}  // namespace remora::transport::rdma
