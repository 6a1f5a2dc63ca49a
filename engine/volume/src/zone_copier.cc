#include "zone_copier.h"

#include <thread>
#include <utility>
#include <vector>

#include <remora/assert.h>
#include <remora/start_thread.h>

#include "mirror_layout.h"

namespace remora::volume::detail {

using remora::detail::MutexLock;

ZoneCopier::ZoneCopier(ClaimedVolume& volume, std::uint32_t group, CopyPace& pace,
                       std::chrono::nanoseconds step_limit, std::function<void(std::uint32_t)> told)
    : volume_{volume},
      group_{group},
      step_limit_{step_limit},
      told_{std::move(told)},
      pace_{pace} {}

Status ZoneCopier::run(std::uint32_t threads) {
  std::vector<std::thread> helpers;
  for (std::uint32_t i = 1; i < threads && i < volume_.zone_count(); ++i) {
    auto helper = remora::detail::start_thread("remora-rebuild", [this] { work(); });
    if (!helper) break;  // the others go on
    helpers.push_back(std::move(*helper));
  }
  work();
  for (std::thread& helper : helpers) helper.join();
  const MutexLock lock{mutex_};
  return failure_;
}

void ZoneCopier::work() {
  while (const auto zone = next())
    end_zone(volume_.copy_zone(group_, *zone, std::chrono::steady_clock::now() + step_limit_));
}

std::optional<std::uint32_t> ZoneCopier::next() {
  std::uint32_t zone = 0;
  {
    const MutexLock lock{mutex_};
    if (!failure_ || next_ == volume_.zone_count()) return std::nullopt;
    zone = next_++;
  }
  // Without the lock: what other threads have copied is told meanwhile, and what has failed noted.
  const bool goes_on = pace_.wait_for(kZoneBytes, [this] {
    const MutexLock lock{mutex_};
    return !failure_.ok();
  });
  const MutexLock lock{mutex_};
  if (!goes_on && failure_) failure_ = Error{Code::kCancelled, "copy of a group"};
  if (!failure_) return std::nullopt;
  return zone;
}

void ZoneCopier::end_zone(const Status& copied) {
  const MutexLock lock{mutex_};
  if (!copied && failure_) failure_ = copied;
  REMORA_ASSERT(done_ < next_, "a zone that was taken is copied once");
  if (copied && told_) told_(++done_);
}

}  // namespace remora::volume::detail
