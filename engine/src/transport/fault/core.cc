#include "transport/fault/core.h"

#include <algorithm>
#include <utility>

namespace remora::detail {

bool FaultCore::lets_connect() noexcept {
  const MutexLock lock{mutex_};
  FaultSampler sampler{seed_, FaultSampler::Place::kConnect, attempts_++};
  bool refused = sampler.draw(rates_.refuse_connect) || Clock::now() < refused_until_;
  if (refused_next_ != 0) {
    --refused_next_;
    refused = true;
  }
  ++(refused ? counts_.connects_refused : counts_.connects);
  return !refused;
}

/// Draws the same number of times for each request, so that the faults of the next request depend
/// neither on the rates nor on the faults of this one.
FaultVerdict FaultCore::verdict(FaultSampler& sampler) noexcept {
  using Loss = FaultVerdict::Loss;
  FaultVerdict found;
  const bool lane = sampler.draw(rates_.lose_lane);
  const bool connection = sampler.draw(rates_.lose_connection);
  found.landed = sampler.draw(rates_.landed);
  const bool delayed = sampler.draw(rates_.delay);
  const auto range = static_cast<std::uint64_t>((rates_.max_delay - rates_.delay_least).count());
  const std::chrono::nanoseconds delay =
      rates_.delay_least +
      std::chrono::nanoseconds{static_cast<std::int64_t>(sampler.next() % (range + 1))};
  found.hold = sampler.draw(rates_.hold);
  found.reorder = sampler.draw(rates_.reorder);
  found.loss = connection ? Loss::kConnection : lane ? Loss::kLane : Loss::kNone;
  if (delayed) found.delay = delay;
  if (delayed_next_ != 0) {
    --delayed_next_;
    found.delay = std::max(found.delay, next_delay_);
  }
  if (next_loss_ != Loss::kNone && before_loss_-- == 0) {
    found.loss = std::exchange(next_loss_, Loss::kNone);
    found.landed = next_landing_ == Landing::kLanded;
  }
  return found;
}

std::size_t FaultCore::judge(FaultSampler& sampler, std::span<FaultVerdict> verdicts) noexcept {
  const MutexLock lock{mutex_};
  counts_.requests += verdicts.size();
  for (std::size_t i = 0; i < verdicts.size(); ++i) {
    verdicts[i] = verdict(sampler);
    if (verdicts[i].loss != FaultVerdict::Loss::kNone) return i + 1;
  }
  return verdicts.size();
}

bool FaultCore::drops_answer(FaultSampler& sampler) noexcept {
  const MutexLock lock{mutex_};
  if (!sampler.draw(rates_.drop_answer)) return false;
  ++counts_.answers_dropped;
  return true;
}

void FaultCore::add_bell(const std::shared_ptr<FaultBell>& bell) {
  const MutexLock lock{mutex_};
  std::erase_if(bells_, [](const auto& weak) { return weak.expired(); });
  bells_.emplace_back(bell);
}

void FaultCore::add_link(const std::shared_ptr<FaultLink>& link) {
  const MutexLock lock{mutex_};
  std::erase_if(links_, [](const auto& weak) { return weak.expired(); });
  links_.emplace_back(link);
}

void FaultCore::cut(FaultLink& link) noexcept {
  const auto endpoint = link.endpoint.lock();
  if (endpoint == nullptr || link.cut.exchange(true)) return;
  count(&Counts::connections_lost);
  endpoint->shutdown();
}

void FaultCore::count(std::uint64_t Counts::*what, std::uint64_t times) noexcept {
  const MutexLock lock{mutex_};
  counts_.*what += times;
}

void FaultCore::set_rates(const Rates& rates) noexcept {
  const MutexLock lock{mutex_};
  rates_ = rates;
}

void FaultCore::lose_next(FaultVerdict::Loss loss, Landing landing,
                          std::uint64_t requests_before) noexcept {
  const MutexLock lock{mutex_};
  next_loss_ = loss;
  next_landing_ = landing;
  before_loss_ = requests_before;
}

void FaultCore::lose_connections() noexcept {
  std::vector<std::weak_ptr<FaultLink>> links;
  {
    const MutexLock lock{mutex_};
    links.swap(links_);  // connections stay cut
  }
  for (const auto& weak : links)
    if (const auto link = weak.lock()) cut(*link);
}

void FaultCore::refuse_connects(std::uint64_t count) noexcept {
  const MutexLock lock{mutex_};
  refused_next_ = count;
}

void FaultCore::refuse_connects_for(std::chrono::nanoseconds time) noexcept {
  const MutexLock lock{mutex_};
  refused_until_ = time <= time.zero() ? Deadline::min() : deadline_after(time);
}

void FaultCore::delay_next(std::uint64_t requests, std::chrono::nanoseconds delay) noexcept {
  const MutexLock lock{mutex_};
  delayed_next_ = requests;
  next_delay_ = std::clamp(delay, std::chrono::nanoseconds{0}, testing::kMaxFaultDelay);
}

void FaultCore::release_completions() noexcept {
  holds_completions_.store(false);
  releases_.fetch_add(1);
  ring_all();
}

void FaultCore::release_answers() noexcept {
  holds_answers_.store(false);
  ring_all();
}

void FaultCore::ring_all() noexcept {
  const MutexLock lock{mutex_};
  for (const auto& weak : bells_)
    if (const auto bell = weak.lock()) bell->ring();
}

FaultCore::Counts FaultCore::counts() const noexcept {
  const MutexLock lock{mutex_};
  Counts counts = counts_;
  counts.lanes = lanes_.load();
  return counts;
}

}  // namespace remora::detail
