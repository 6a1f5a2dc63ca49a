#pragma once

/// The server's side of one session over tcp: its grants and its lanes.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <remora/mutex.h>
#include <remora/result.h>

#include "base/unique_fd.h"
#include "transport/grant.h"
#include "transport/notice.h"
#include "transport/tcp/grant_table.h"
#include "transport/tcp/thread_seat.h"

namespace remora::transport::tcp {

/// Counts of requests that were served in a step, or since the last report.
struct ServedCounts {
  std::array<std::uint64_t, 4> operations{};  ///< by Opcode; writes of zeroes count as writes
  std::array<std::uint64_t, 2> bytes{};       ///< [0]: read, [1]: written
  std::uint64_t refused = 0;
  std::uint64_t corrupt = 0;

  ServedCounts& operator+=(const ServedCounts& more) noexcept;
};

class ServerLane;

/// Shared by the endpoint, its grants and its lanes.
///
/// One thread serves all lanes of a session, in steps of bounded length, and holds the session's
/// lock during a step. So a thread that holds the lock knows that no transfer accesses the granted
/// memory, and the data of one session never waits for another session.
class ServedSession : public std::enable_shared_from_this<ServedSession> {
 public:
  static constexpr std::size_t kMaxLanes = 8;

  /// Errors: kSystem.
  static Result<std::shared_ptr<ServedSession>> create(ThreadSeat seat = {});
  ServedSession(UniqueFd event, ThreadSeat seat) noexcept
      : event_{std::move(event)}, seat_{std::move(seat)} {}

  /// Errors: kLimitExceeded; kConnectionLost (ended); kInvalidArgument: GrantRequest::keys are not
  /// valid here.
  Result<Grant> grant(const GrantRequest& request);
  /// On return no transfer accesses memory by these keys. A transfer that did ends with its lane.
  void revoke(std::span<const std::uint32_t> keys) noexcept;

  /// Errors: kLimitExceeded (kMaxLanes); kConnectionLost (ended).
  Status add_lane(const std::shared_ptr<ServerLane>& lane);
  /// A lane has ended by itself, and ends the session.
  void lane_ended(const ServerLane& lane) noexcept;
  /// Ends the lanes; on return they access no memory any more. Idempotent.
  void end() noexcept;
  /// After end(): the session accepts lanes again, for its existing grants.
  void begin_again() noexcept;

  /// Called for a lane that is being served. False: too many notices wait to be handled; the lane
  /// is parked.
  [[nodiscard]] bool put_notice(const Notice& notice);
  /// Control thread. Returns how many were taken, and whether lanes may have been parked before.
  std::pair<std::size_t, bool> take_notices(std::span<Notice> notices) noexcept;

  /// Index of the thread that serves its lanes. It does not change.
  [[nodiscard]] std::size_t thread() const noexcept { return seat_.thread(); }

  /// Readable when a lane has ended, from then on, and while there are notices.
  [[nodiscard]] int event_fd() const noexcept { return event_.get(); }
  [[nodiscard]] bool broken() const noexcept { return broken_.load(std::memory_order_acquire); }
  /// Clears the event of notices; the event of an ended lane stays.
  void take_event() noexcept;

  /// Runs a step of a lane, which counts the requests that it has served. Called by the thread that
  /// serves. False: other threads want the session's lock; call again.
  template <typename Step>
  bool serve(Step&& step) {
    // The lock is not fair: this thread, which has just held it, would nearly always get it again.
    if (wanted_.load(std::memory_order_relaxed) != 0) return false;
    const remora::detail::MutexLock lock{mutex_};
    add_counts(step(static_cast<const GrantTable&>(grants_)));
    return true;
  }
  /// Requests served so far, without refused ones. Any thread; never blocks.
  [[nodiscard]] ServedCounts served() const noexcept;

 private:
  /// The session's lock, for all threads but the one that serves.
  class REMORA_SCOPED_CAPABILITY Exclusive {
   public:
    explicit Exclusive(ServedSession& session) noexcept REMORA_ACQUIRE(session.mutex_)
        : session_{session} {
      session_.wanted_.fetch_add(1, std::memory_order_relaxed);
      session_.mutex_.lock();
      session_.wanted_.fetch_sub(1, std::memory_order_relaxed);
    }
    ~Exclusive() REMORA_RELEASE() { session_.mutex_.unlock(); }
    Exclusive(const Exclusive&) = delete;
    Exclusive& operator=(const Exclusive&) = delete;

   private:
    ServedSession& session_;
  };

  Result<std::uint32_t> add_as(std::uint32_t key, const GrantedExtent& extent)
      REMORA_REQUIRES(mutex_);
  /// Called only by the thread that serves, so it needs no lock.
  void add_counts(const ServedCounts& served) noexcept;

  std::array<std::atomic<std::uint64_t>, 4> operations_served_{};
  std::array<std::atomic<std::uint64_t>, 2> bytes_served_{};
  UniqueFd event_;
  const ThreadSeat seat_;
  std::atomic<bool> broken_{false};
  std::atomic<int> wanted_{0};
  remora::detail::Mutex mutex_;
  GrantTable grants_ REMORA_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<ServerLane>> lanes_ REMORA_GUARDED_BY(mutex_);
  std::deque<Notice> notices_ REMORA_GUARDED_BY(mutex_);
  bool ended_ REMORA_GUARDED_BY(mutex_) = false;
};

}  // namespace remora::transport::tcp
