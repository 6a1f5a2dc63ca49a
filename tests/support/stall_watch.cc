#include "stall_watch.h"

#include <algorithm>

namespace remora::test {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

StallWatch::StallWatch() : thread_{[this] { watch(); }} {}

StallWatch::~StallWatch() {
  {
    const std::lock_guard lock{mutex_};
    over_ = true;
  }
  ended_.notify_all();
  thread_.join();
}

void StallWatch::watch() {
  std::unique_lock lock{mutex_};
  while (!ended_.wait_until(lock, Clock::now() + kPeriod, [this] { return over_; })) {
    const auto now = Clock::now();
    if (now - awake_ >= kPeriod + kLeast) stalls_.push_back({awake_ + kPeriod, now});
    awake_ = now;
  }
}

milliseconds StallWatch::longest() const {
  const std::lock_guard lock{mutex_};
  nanoseconds most{0};
  for (const auto& [began, ended] : stalls_) most = std::max(most, nanoseconds{ended - began});
  return std::chrono::duration_cast<milliseconds>(most);
}

nanoseconds StallWatch::within(Clock::time_point from, Clock::time_point to) const {
  const std::lock_guard lock{mutex_};
  const auto common = [&](Clock::time_point began, Clock::time_point ended) {
    return std::max(nanoseconds{0}, nanoseconds{std::min(ended, to) - std::max(began, from)});
  };
  nanoseconds sum{0};
  for (const auto& [began, ended] : stalls_) sum += common(began, ended);
  // Whoever asks may be the first to run again.
  if (const auto now = Clock::now(); now - awake_ >= kPeriod + kLeast)
    sum += common(awake_ + kPeriod, now);
  return sum;
}

void StallWatch::overlook(Clock::time_point from) {
  const std::lock_guard lock{mutex_};
  awake_ = Clock::now();
  stalls_.erase(std::remove_if(stalls_.begin(), stalls_.end(),
                               [&](const Stall& one) { return one.ended >= from; }),
                stalls_.end());
}

}  // namespace remora::test
