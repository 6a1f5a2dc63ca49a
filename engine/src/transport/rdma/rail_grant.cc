#include "transport/rdma/rail_grant.h"

#include <algorithm>
#include <utility>

#include <remora/assert.h>

#include "transport/rdma/grant_domain.h"

namespace remora::transport::rdma {

RailGrant::RailGrant(const GrantRequest& request, std::uint64_t move)
    : stretches_{request.extents.begin(), request.extents.end()},
      rights_{request.rights},
      atomic_domain_{request.atomic_domain},
      move_{move},
      stop_{request.stop} {}

RailGrant::~RailGrant() = default;

std::uint64_t RailGrant::address_of(const MemoryStretch& stretch) const noexcept {
  return reinterpret_cast<std::uintptr_t>(stretch.address) + (move_ << SessionRails::kAddressBits);
}

bool RailGrant::is_on(const verbs::Device& device) const noexcept {
  return std::any_of(parts_.begin(), parts_.end(),
                     [&](const Part& each) { return each.device == device; });
}

Status RailGrant::register_on(const SessionRails::Place& place) {
  const verbs::Device& device = place.domain.device();
  if (is_on(device)) return {};
  auto share = take_share(place.budgets, stretches_);
  if (!share) return share.error();
  const bool atomics = device.name() == atomic_domain_;
  const verbs::Access access =
      registration_access(atomics ? rights_ : rights_ & Rights::kReadWrite, device);
  Part part{.device = device, .share = std::move(*share), .memory = {}};
  for (const MemoryStretch& stretch : stretches_) {
    Result<verbs::MemoryRegion> made = Error{Code::kCancelled, "register memory"};
    if (!stop_.stop_requested())
      made = verbs::MemoryRegion::register_at(place.domain, {stretch.address, stretch.length_bytes},
                                              address_of(stretch), access);
    if (!made) {
      if (const Status released = release(part); !released)
        left_.emplace_back(device, released.error());
      return made.error();
    }
    part.memory.push_back(std::move(*made));
  }
  parts_.push_back(std::move(part));
  return {};
}

std::vector<WireExtent> RailGrant::extents() const {
  std::vector<WireExtent> all;
  std::uint64_t start = 0;
  for (std::size_t i = 0; i < stretches_.size(); ++i) {
    all.push_back({.start_bytes = start,
                   .length_bytes = stretches_[i].length_bytes,
                   .remote_address = address_of(stretches_[i]),
                   .remote_key = parts_.empty() ? 0 : parts_.front().memory[i].rkey()});
    start += stretches_[i].length_bytes;
  }
  return all;
}

std::uint32_t RailGrant::key_on(const verbs::Device& device, std::size_t extent) const noexcept {
  for (const Part& each : parts_)
    if (each.device == device) {
      REMORA_ASSERT(extent < each.memory.size(), "each extent is registered on each device");
      return each.memory[extent].rkey();
    }
  return 0;
}

Status RailGrant::release(Part& part) noexcept {
  Status status;
  for (verbs::MemoryRegion& memory : part.memory) {
    const std::uint64_t length_bytes = memory.length_bytes();
    const Status deregistered = std::move(memory).deregister();
    if (deregistered || part.device.gone()) continue;  // the registration has gone with the device
    part.share.lose_one(length_bytes);
    status = deregistered;
  }
  part.memory.clear();
  return status;
}

Status RailGrant::revoke() noexcept {
  leave_device();  // registrations on lost devices reach nothing and cannot be revoked
  Status status;
  if (!left_.empty()) status = left_.back().second;
  for (Part& part : parts_)
    if (const Status released = release(part); !released) status = released;
  parts_.clear();
  left_.clear();
  return status;
}

void RailGrant::leave_device() noexcept {
  std::erase_if(parts_, [](const Part& each) { return each.device.gone(); });
  std::erase_if(left_, [](const auto& each) { return each.first.gone(); });
}

}  // namespace remora::transport::rdma
