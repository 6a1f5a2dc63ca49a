#include "client/session/lane_ender.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include <remora/assert.h>
#include <remora/engine/engine.h>
#include <remora/start_thread.h>

#include "base/log.h"

namespace remora::detail {

LaneEnder::LaneEnder(std::function<std::shared_ptr<void>()> keep) : keep_{std::move(keep)} {
  endings_.reserve(kMaxLanes);
}

LaneEnder::~LaneEnder() {
  REMORA_ASSERT(std::none_of(endings_.begin(), endings_.end(),
                             [](const Ending& each) { return each.thread.joinable(); }),
                "a session stops its lane ender before it goes");
}

LaneEnder::Ending& LaneEnder::ending_of(LaneDriver& lane) noexcept {
  const auto found = std::find_if(endings_.begin(), endings_.end(),
                                  [&](const Ending& each) { return each.lane == &lane; });
  if (found != endings_.end()) return *found;
  REMORA_ASSERT(endings_.size() < kMaxLanes, "a session has kMaxLanes lanes at most");
  return endings_.emplace_back(lane);
}

bool LaneEnder::end_later(LaneDriver& lane) noexcept {
  // The thread has a reference to the session, and so to the lane.
  std::shared_ptr<void> session = keep_();
  if (session == nullptr) return false;
  const MutexLock lock{mutex_};
  Ending& ending = ending_of(lane);
  if (ending.at_work) {
    ending.again = true;
    return true;
  }
  if (ending.thread.joinable()) ending.thread.join();  // the thread has returned, or is about to
  auto thread =
      start_thread("remora-lanes", [this, kept = std::move(session), &ending] { run(ending); });
  if (!thread) {
    log::warn({"lane.no_thread", "reason"}, "no thread to end a broken lane: {}",
              thread.error().message());
    return false;
  }
  ending.at_work = true;
  ending.thread = std::move(*thread);
  return true;
}

void LaneEnder::run(Ending& ending) noexcept {
  MutexLock lock{mutex_};
  do {
    ending.again = false;
    lock.unlock();
    ending.lane->end_broken_lane();
    lock.lock();
  } while (ending.again);
  ending.at_work = false;
}

void LaneEnder::stop() noexcept {
  std::array<std::thread, kMaxLanes> threads;
  {
    const MutexLock lock{mutex_};
    for (std::size_t i = 0; i < endings_.size(); ++i) threads[i].swap(endings_[i].thread);
  }
  for (std::thread& thread : threads) {
    if (!thread.joinable()) continue;
    if (thread.get_id() == std::this_thread::get_id())
      thread.detach();
    else
      thread.join();
  }
}

}  // namespace remora::detail
