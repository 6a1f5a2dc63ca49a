#include "client/session/lane_ender.h"

#include <algorithm>
#include <utility>

#include <remora/assert.h>
#include <remora/engine/engine.h>
#include <remora/start_thread.h>

#include "base/log.h"
#include "client/session/session_core.h"

namespace remora::detail {

LaneEnder::LaneEnder(SessionCore& session) : session_{session} { lanes_.reserve(kMaxLanes); }

LaneEnder::~LaneEnder() {
  REMORA_ASSERT(!thread_.joinable(), "a session stops its lane ender before it goes");
}

bool LaneEnder::end_later(LaneDriver& lane) noexcept {
  // The thread keeps the session, and with it the lane.
  std::shared_ptr<SessionCore> session = session_.weak_from_this().lock();
  if (session == nullptr) return false;
  const MutexLock lock{mutex_};
  if (at_work_) {
    if (std::find(lanes_.begin(), lanes_.end(), &lane) == lanes_.end()) lanes_.push_back(&lane);
    return true;
  }
  if (thread_.joinable()) thread_.join();  // it has ended its work
  auto thread =
      start_thread("remora-lanes", [kept = std::move(session)] { kept->lane_set().ender().run(); });
  if (!thread) {
    log::warn("no thread to end a broken lane: {}", thread.error().message());
    return false;
  }
  lanes_.push_back(&lane);
  at_work_ = true;
  thread_ = std::move(*thread);
  return true;
}

void LaneEnder::run() noexcept {
  MutexLock lock{mutex_};
  while (!lanes_.empty()) {
    LaneDriver& lane = *lanes_.back();
    lanes_.pop_back();
    lock.unlock();
    lane.end_broken_lane();
    lock.lock();
  }
  at_work_ = false;
}

void LaneEnder::stop() noexcept {
  std::thread thread;
  {
    const MutexLock lock{mutex_};
    thread.swap(thread_);
  }
  if (!thread.joinable()) return;
  if (thread.get_id() == std::this_thread::get_id())
    thread.detach();
  else
    thread.join();
}

}  // namespace remora::detail
