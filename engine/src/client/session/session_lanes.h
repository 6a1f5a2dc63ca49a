#pragma once

/// The lanes of one session.

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <vector>

#include <remora/engine/engine.h>
#include <remora/mutex.h>
#include <remora/result.h>

#include "base/clock.h"
#include "client/datapath/lane_driver.h"
#include "client/session/lane_ender.h"
#include "transport/lane.h"

namespace remora::detail {

class SessionCore;

/// Opens the drivers of a session's lanes, and breaks, ends and resumes all of them together. Where
/// one lane breaks in a call that may not wait, the others break once that lane has ended: until
/// then an operation may succeed on them beside one whose outcome is uncertain. settled() waits.
class SessionLanes {
 public:
  explicit SessionLanes(SessionCore& session);
  SessionLanes(const SessionLanes&) = delete;
  SessionLanes& operator=(const SessionLanes&) = delete;

  /// Opens the first lanes of a session that begins. Errors: those of ClientEndpoint::open_lane();
  /// kConnectionLost: the session has ended meanwhile.
  Status open(Deadline deadline);
  /// Opens the lanes with which an interrupted session goes on, for replace(); none where memory is
  /// mapped.
  Result<std::vector<std::unique_ptr<transport::Lane>>> open_again(Deadline deadline);

  // Only once the session has begun.
  /// All lanes are alike. A completion on one lane says nothing of operations on another.
  /// Not checked by clang: once the session has begun, lanes_ does not change.
  [[nodiscard]] const std::vector<std::unique_ptr<LaneDriver>>& all() const noexcept
      REMORA_NO_THREAD_SAFETY_ANALYSIS {
    return lanes_;
  }
  /// The lane for one more queue: queues take the lanes in turn.
  [[nodiscard]] LaneDriver& next() noexcept {
    return *all()[queues_.fetch_add(1, std::memory_order_relaxed) % all().size()];
  }
  /// The lane for synchronous operations of this thread.
  [[nodiscard]] LaneDriver& of_thread() const noexcept {
    return all().size() == 1 ? *all().front() : *all()[thread_number() % all().size()];
  }
  /// The lanes carry out operations that return bytes: reads and atomics.
  [[nodiscard]] bool take_reads() const noexcept { return reads_; }
  /// False: the new lanes can do less than the old ones.
  [[nodiscard]] bool replace(std::vector<std::unique_ptr<transport::Lane>> lanes) noexcept;

  // Also while the session begins. Any thread.
  [[nodiscard]] bool any_broken() const noexcept;
  [[nodiscard]] bool any_breaking() const noexcept;
  /// The fault that broke the first of the lanes, if an operation did.
  [[nodiscard]] LaneFault fault() const noexcept;
  void interrupt(Reason reason, LaneFault fault) noexcept;
  void fail(Reason reason, LaneFault fault) noexcept;
  /// By the destructor of the session.
  void close() noexcept;

 private:
  [[nodiscard]] static std::size_t thread_number() noexcept;
  [[nodiscard]] std::array<LaneDriver*, kMaxLanes> opened_lanes() const noexcept;
  [[nodiscard]] LaneDriver::BrokenHandler broken_handler();
  Status add(std::unique_ptr<LaneDriver> driver);

  SessionCore& session_;
  LaneEnder ender_;
  std::atomic<std::size_t> queues_{0};
  bool reads_ = true;
  /// Locked while lanes_ is changed, and by callers that may read it meanwhile. Once the session
  /// has begun, lanes_ is complete, and all() reads it without the lock.
  mutable Mutex opening_;
  std::vector<std::unique_ptr<LaneDriver>> lanes_ REMORA_GUARDED_BY(opening_);
};

}  // namespace remora::detail
