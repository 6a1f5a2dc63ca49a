#pragma once

#include <thread>
#include <vector>

#include <remora/mutex.h>

#include "client/datapath/lane_driver.h"

namespace remora::detail {

class SessionCore;

/// A thread that ends the broken lanes of one session, for callers that must not wait for a device.
/// Runs only while there is such a lane.
class LaneEnder {
 public:
  explicit LaneEnder(SessionCore& session);
  ~LaneEnder();
  LaneEnder(const LaneEnder&) = delete;
  LaneEnder& operator=(const LaneEnder&) = delete;

  /// Has the thread call LaneDriver::end_broken_lane() of `lane`, one of the session's. Any thread.
  /// False: there is no thread, or the session is being destroyed.
  [[nodiscard]] bool end_later(LaneDriver& lane) noexcept;
  /// By the destructor of the session, also in that thread, which then ends by itself.
  void stop() noexcept;

 private:
  void run() noexcept;

  SessionCore& session_;
  Mutex mutex_;
  std::vector<LaneDriver*> lanes_ REMORA_GUARDED_BY(mutex_);  ///< has room for all of the session
  bool at_work_ REMORA_GUARDED_BY(mutex_) = false;
  std::thread thread_ REMORA_GUARDED_BY(mutex_);
};

}  // namespace remora::detail
