#include "transport/rdma/session_rails.h"

#include <algorithm>
#include <utility>

namespace remora::transport::rdma {

namespace {

constexpr std::uint64_t kMaxRailMoves = (std::uint64_t{1} << (64 - SessionRails::kAddressBits)) - 1;

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
  const std::uint64_t move = (request.address - there) >> kAddressBits;
  if (move == 0 || move > kMaxRailMoves || there + (move << kAddressBits) != request.address)
    return std::nullopt;
  const remora::detail::MutexLock lock{mutex_};
  moves_ = std::max(moves_, move);
  return move;
}

}  // namespace remora::transport::rdma
