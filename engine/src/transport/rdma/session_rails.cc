#include "transport/rdma/session_rails.h"

#include <algorithm>
#include <utility>

namespace remora::transport::rdma {

namespace {

/// User addresses are below this on every processor that Linux has RDMA on.
constexpr unsigned kRailAddressBits = 48;
constexpr std::uint64_t kMaxRailMoves = (std::uint64_t{1} << (64 - kRailAddressBits)) - 1;

}  // namespace

Result<SessionRails::Place> SessionRails::place_on(const verbs::Device& device,
                                                   const GrantBudgets& budgets) {
  const remora::detail::MutexLock lock{mutex_};
  if (retired_) return Error{Code::kConnectionLost, "lane of a session that is over"};
  for (const Place& each : places_)
    if (each.domain.device() == device) return each;
  auto domain = device.allocate_domain();
  if (!domain) return domain.error();
  places_.push_back({.domain = std::move(*domain), .budgets = budgets});
  return places_.back();
}

std::vector<SessionRails::Place> SessionRails::places() const {
  const remora::detail::MutexLock lock{mutex_};
  std::vector<Place> here;
  for (const Place& each : places_)
    if (!each.domain.device().gone()) here.push_back(each);
  return here;
}

bool SessionRails::any_gone() const {
  const remora::detail::MutexLock lock{mutex_};
  return std::any_of(places_.begin(), places_.end(),
                     [](const Place& each) { return each.domain.device().gone(); });
}

void SessionRails::leave_gone() noexcept {
  const remora::detail::MutexLock lock{mutex_};
  std::erase_if(places_, [](const Place& each) { return each.domain.device().gone(); });
}

void SessionRails::retire() noexcept {
  const remora::detail::MutexLock lock{mutex_};
  retired_ = true;
}

bool SessionRails::retired() const {
  const remora::detail::MutexLock lock{mutex_};
  return retired_;
}

std::uint64_t SessionRails::next_move() noexcept {
  const remora::detail::MutexLock lock{mutex_};
  return moves_++ % kMaxRailMoves + 1;
}

std::optional<std::uint64_t> SessionRails::keep_move(const GrantRequest& request) noexcept {
  if (request.extents.empty()) return std::nullopt;
  const std::uint64_t there = reinterpret_cast<std::uintptr_t>(request.extents.front().address);
  const std::uint64_t move = (request.address - there) >> kRailAddressBits;
  if (move == 0 || move > kMaxRailMoves || there + (move << kRailAddressBits) != request.address)
    return std::nullopt;
  const remora::detail::MutexLock lock{mutex_};
  moves_ = std::max(moves_, move);
  return move;
}

RailGrant::RailGrant(const GrantRequest& request, std::uint64_t move)
    : stretches_{request.extents.begin(), request.extents.end()},
      rights_{request.rights},
      atomic_domain_{request.atomic_domain},
      move_{move} {}

RailGrant::~RailGrant() = default;

std::uint64_t RailGrant::address_of(const MemoryStretch& stretch) const noexcept {
  return reinterpret_cast<std::uintptr_t>(stretch.address) + (move_ << kRailAddressBits);
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
    auto made = verbs::MemoryRegion::register_at(
        place.domain, {stretch.address, stretch.length_bytes}, address_of(stretch), access);
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
    if (each.device == device) return each.memory[extent].rkey();
  return 0;
}

Status RailGrant::release(Part& part) noexcept {
  Status status;
  for (verbs::MemoryRegion& memory : part.memory) {
    const std::uint64_t length_bytes = memory.length_bytes();
    const Status deregistered = std::move(memory).deregister();
    if (deregistered || part.device.gone()) continue;  // it has taken the registration with it
    part.share.lose_one(length_bytes);
    status = deregistered;
  }
  part.memory.clear();
  return status;
}

Status RailGrant::revoke() noexcept {
  leave_device();  // what is there reaches nothing any more, and cannot be taken back in order
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
