#include "stall_watch.h"

#include <algorithm>

namespace remora::test {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

StallWatch::StallWatch() : thread_{[this] { watch(); }} {}

StallWatch::~StallWatch() {
  {
    const detail::MutexLock lock{mutex_};
    over_ = true;
  }
  ended_.notify_all();
  thread_.join();
}

void StallWatch::watch() {
  detail::MutexLock lock{mutex_};
  while (!ended_.wait_until(lock, Clock::now() + kPeriod, [this] {
    mutex_.assert_held();
    return over_;
  })) {
    const auto now = Clock::now();
    if (now - awake_ >= kPeriod + kLeast) stalls_.push_back({awake_ + kPeriod, now});
    awake_ = now;
  }
}

milliseconds StallWatch::longest() const {
  const detail::MutexLock lock{mutex_};
  nanoseconds longest{0};
  for (const auto& [began, ended] : stalls_)
    longest = std::max(longest, nanoseconds{ended - began});
  return std::chrono::duration_cast<milliseconds>(longest);
}

nanoseconds StallWatch::within(Clock::time_point from, Clock::time_point to) const {
  const detail::MutexLock lock{mutex_};
  const auto common = [&](Clock::time_point began, Clock::time_point ended) {
    return std::max(nanoseconds{0}, nanoseconds{std::min(ended, to) - std::max(began, from)});
  };
  nanoseconds sum{0};
  for (const auto& [began, ended] : stalls_) sum += common(began, ended);
  // The calling thread may be the first to run again.
  if (const auto now = Clock::now(); now - awake_ >= kPeriod + kLeast)
    sum += common(awake_ + kPeriod, now);
  return sum;
}

void StallWatch::overlook(Clock::time_point from) {
  const detail::MutexLock lock{mutex_};
  awake_ = Clock::now();
  stalls_.erase(std::remove_if(stalls_.begin(), stalls_.end(),
                               [&](const Stall& one) { return one.ended >= from; }),
                stalls_.end());
}

}  // namespace remora::test
