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

CopyPace::CopyPace(std::uint64_t bytes_per_second_max, Question stop, Time time)
    : bytes_per_second_max_{bytes_per_second_max},
      stop_{std::move(stop)},
      time_{std::move(time)},
      next_{time_.now()} {}

bool CopyPace::wait_for(std::uint64_t bytes, const Question& ended) {
  if (stopped()) return false;
  if (bytes_per_second_max_ == 0) return true;
  const auto begin = reserve(bytes);
  for (auto now = time_.now(); now < begin; now = time_.now()) {
    if (ended && ended()) return false;
    time_.sleep(std::min<Clock::duration>(begin - now, kSleepMax));
    if (stopped()) return false;
  }
  return true;
}

bool CopyPace::stopped() {
  if (!stop_) return false;
  const remora::detail::MutexLock lock{asking_};
  return stop_();
}

CopyPace::Clock::time_point CopyPace::reserve(std::uint64_t bytes) {
  const double seconds = static_cast<double>(bytes) / static_cast<double>(bytes_per_second_max_);
  const auto taken =
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  const remora::detail::MutexLock lock{mutex_};
  // A pause that was longer than the limit demands is not made up for.
  const auto begin = std::max(next_, time_.now());
  next_ = begin + taken;
  return begin;
}

}  // namespace remora::volume::detail
