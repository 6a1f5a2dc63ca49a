#include "copy_pace.h"

#include <algorithm>
#include <thread>
#include <utility>

namespace remora::volume::detail {

namespace {

/// `stop` is asked so often.
constexpr std::chrono::milliseconds kSleepMax{50};

}  // namespace

CopyPace::Time CopyPace::real_time() {
  return {.now = [] { return Clock::now(); },
          .sleep = [](Clock::duration duration) { std::this_thread::sleep_for(duration); }};
}

CopyPace::CopyPace(std::uint64_t bytes_per_second_max, std::function<bool()> stop, Time time)
    : bytes_per_second_max_{bytes_per_second_max},
      stop_{std::move(stop)},
      time_{std::move(time)},
      next_{time_.now()} {}

bool CopyPace::wait_for(std::uint64_t bytes) {
  const remora::detail::MutexLock lock{mutex_};
  if (stop_ && stop_()) return false;
  if (bytes_per_second_max_ == 0) return true;
  for (auto now = time_.now(); now < next_; now = time_.now()) {
    time_.sleep(std::min<Clock::duration>(next_ - now, kSleepMax));
    if (stop_ && stop_()) return false;
  }
  // A pause that was longer than the limit demands is not made up for.
  const double seconds = static_cast<double>(bytes) / static_cast<double>(bytes_per_second_max_);
  next_ = std::max(next_, time_.now()) +
          std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  return true;
}

}  // namespace remora::volume::detail
