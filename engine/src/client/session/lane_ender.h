#pragma once

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include <remora/mutex.h>

#include "client/datapath/lane_driver.h"

namespace remora::detail {

/// Threads that end the broken lanes of one session, for callers that must not wait for a device.
/// There is one for each such lane: a device that is slow to end a lane does not delay the
/// operations of another one.
class LaneEnder {
 public:
  /// `keep`: returns what keeps the session, and with it this and the lanes; null while the session
  /// is being destroyed.
  explicit LaneEnder(std::function<std::shared_ptr<void>()> keep);
  ~LaneEnder();
  LaneEnder(const LaneEnder&) = delete;
  LaneEnder& operator=(const LaneEnder&) = delete;

  /// Has a thread call LaneDriver::end_broken_lane() of `lane`, one of the session's. Any thread.
  /// False: there is no thread, or the session is being destroyed.
  [[nodiscard]] bool end_later(LaneDriver& lane) noexcept;
  /// By the destructor of the session, also in one of these threads, which then ends by itself.
  void stop() noexcept;

 private:
  struct Ending {
    explicit Ending(LaneDriver& ends) noexcept : lane{&ends} {}
    LaneDriver* lane;
    bool at_work = false;
    bool again = false;  ///< asked for while the thread was at work
    std::thread thread;
  };
  [[nodiscard]] Ending& ending_of(LaneDriver& lane) noexcept REMORA_REQUIRES(mutex_);
  void run(Ending& ending) noexcept REMORA_EXCLUDES(mutex_);

  const std::function<std::shared_ptr<void>()> keep_;
  Mutex mutex_;
  /// Of the lanes that have broken. Has room for all lanes of the session, so none moves.
  std::vector<Ending> endings_ REMORA_GUARDED_BY(mutex_);
};

}  // namespace remora::detail
