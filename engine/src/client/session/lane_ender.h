#pragma once

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include <remora/mutex.h>

#include "client/datapath/lane_driver.h"

namespace remora::detail {

/// Threads that end the broken lanes of one session, for callers that must not wait for a device.
/// Each such lane has its own thread, so that a device that ends a lane slowly does not delay the
/// operations of another lane. The session owns it. Thread-safe.
class LaneEnder {
 public:
  /// `keep`: returns a reference to the session, and so to this object and the lanes; null while
  /// the session is being destroyed.
  explicit LaneEnder(std::function<std::shared_ptr<void>()> keep);
  ~LaneEnder();
  LaneEnder(const LaneEnder&) = delete;
  LaneEnder& operator=(const LaneEnder&) = delete;

  /// Makes a thread call LaneDriver::end_broken_lane() of `lane`, a lane of the session. Any
  /// thread. False: there is no thread, or the session is being destroyed.
  [[nodiscard]] bool end_later(LaneDriver& lane) noexcept;
  /// The destructor of the session calls it, perhaps in one of these threads, which then ends by
  /// itself.
  void stop() noexcept;

 private:
  struct Ending {
    explicit Ending(LaneDriver& ends) noexcept : lane{&ends} {}
    LaneDriver* lane;
    bool at_work = false;
    bool again = false;  ///< requested while the thread was at work
    std::thread thread;
  };
  [[nodiscard]] Ending& ending_of(LaneDriver& lane) noexcept REMORA_REQUIRES(mutex_);
  void run(Ending& ending) noexcept REMORA_EXCLUDES(mutex_);

  const std::function<std::shared_ptr<void>()> keep_;
  Mutex mutex_;
  /// One for each lane that has broken. Has room for all lanes of the session, so that no element
  /// moves.
  std::vector<Ending> endings_ REMORA_GUARDED_BY(mutex_);
};

}  // namespace remora::detail
