#include "transport/rail_plan.h"

#include <algorithm>
#include <cstddef>

namespace remora::transport {

RailPlan::Known* RailPlan::find(const std::string& address) {
  const auto found = std::find_if(known_.begin(), known_.end(), [&](const Known& each) {
    return each.address.address == address;
  });
  return found == known_.end() ? nullptr : &*found;
}

void RailPlan::set_first(const std::string& first) {
  const remora::detail::MutexLock lock{mutex_};
  const auto at = std::find_if(known_.begin(), known_.end(),
                               [&](const Known& each) { return each.address.address == first; });
  if (at == known_.end())
    known_.insert(known_.begin(), Known{.address = {.address = first, .device = {}}});
  else
    std::rotate(known_.begin(), at, at + 1);
}

bool RailPlan::is_first(const std::string& address) const {
  const remora::detail::MutexLock lock{mutex_};
  return !known_.empty() && known_.front().address.address == address;
}

void RailPlan::learn(const std::vector<RailAddress>& told) {
  const remora::detail::MutexLock lock{mutex_};
  for (const RailAddress& each : told) {
    if (Known* const known = find(each.address))
      known->address.device = each.device;
    else if (known_.size() < 2 * std::size_t{RailChoice::kMaxRails})
      known_.push_back(Known{.address = each});
  }
}

std::vector<RailAddress> RailPlan::in_order() const {
  const remora::detail::MutexLock lock{mutex_};
  std::vector<const Known*> order;
  for (const Known& each : known_) order.push_back(&each);
  const auto failed = std::stable_partition(order.begin(), order.end(), [](const Known* each) {
    return !each->left_out && (!each->failed || each->answered);
  });
  std::stable_sort(failed, order.end(),
                   [](const Known* a, const Known* b) { return a->failed_at < b->failed_at; });
  std::vector<RailAddress> addresses;
  addresses.reserve(order.size());
  for (const Known* each : order) addresses.push_back(each->address);
  return addresses;
}

std::vector<RailAddress> RailPlan::up() const {
  const remora::detail::MutexLock lock{mutex_};
  std::vector<RailAddress> addresses;
  for (const Known& each : known_)
    if (!each.left_out && (!each.failed || each.answered)) addresses.push_back(each.address);
  return addresses;
}

std::vector<RailAddress> RailPlan::usable() const {
  const remora::detail::MutexLock lock{mutex_};
  std::vector<RailAddress> addresses;
  for (const Known& each : known_)
    if (!each.left_out) addresses.push_back(each.address);
  return addresses;
}

void RailPlan::set_failed(const std::string& address, Clock::time_point now) {
  const remora::detail::MutexLock lock{mutex_};
  Known* const known = find(address);
  if (known == nullptr) return;
  if (known->up_since && now - *known->up_since >= 2 * kMaxPause) known->pause = {};
  known->up_since.reset();
  // The other lanes over this address, and further attempts to connect, report the same failure.
  if (!known->failed || known->answered)
    known->pause = std::clamp(2 * known->pause, kFirstPause, kMaxPause);
  known->failed = true;
  known->answered = false;
  known->failed_at = now;
}

void RailPlan::set_silent(const std::string& address, Clock::time_point now) {
  const remora::detail::MutexLock lock{mutex_};
  Known* const known = find(address);
  if (known == nullptr) return;
  known->failed_at = now;
  if (!known->worked) known->pause = std::clamp(2 * known->pause, kFirstPause, kMaxPause);
}

void RailPlan::leave_out(const std::string& address) {
  const remora::detail::MutexLock lock{mutex_};
  if (Known* const known = find(address)) known->left_out = true;
}

void RailPlan::set_up(const std::string& address, Clock::time_point now) {
  const remora::detail::MutexLock lock{mutex_};
  Known* const known = find(address);
  if (known == nullptr) return;
  if (!known->up_since) known->up_since = now;
  known->failed = known->answered = false;
  known->worked = true;
}

bool RailPlan::has_failed(const std::string& address) const {
  const remora::detail::MutexLock lock{mutex_};
  return std::any_of(known_.begin(), known_.end(), [&](const Known& each) {
    return each.address.address == address && each.failed && !each.answered;
  });
}

void RailPlan::set_spare(const std::string& address) {
  const remora::detail::MutexLock lock{mutex_};
  if (Known* const known = find(address)) known->failed = known->answered = false;
}

std::string RailPlan::due(Clock::time_point now) const {
  const remora::detail::MutexLock lock{mutex_};
  for (const Known& each : known_)
    if (each.failed && !each.answered && !each.left_out && now - each.failed_at >= each.pause)
      return each.address.address;
  return {};
}

void RailPlan::set_answered(const std::string& address) {
  const remora::detail::MutexLock lock{mutex_};
  if (Known* const known = find(address); known != nullptr && known->failed) known->answered = true;
}

bool RailPlan::any_answered() const {
  const remora::detail::MutexLock lock{mutex_};
  return std::any_of(known_.begin(), known_.end(), [](const Known& each) {
    return each.failed && each.answered && !each.left_out;
  });
}

}  // namespace remora::transport
