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

/// Counts of what was served in a step, or since the last report.
struct ServedCounts {
  std::array<std::uint64_t, 4> operations{};  ///< by Opcode; zeroes are writes
  std::array<std::uint64_t, 2> bytes{};       ///< read, written
  std::uint64_t refused = 0;
  std::uint64_t corrupt = 0;

  ServedCounts& operator+=(const ServedCounts& more) noexcept;
};

class ServerLane;

/// Shared by the endpoint, its grants, its lanes.
///
/// One thread serves all lanes of a session, and holds its lock while it serves one: a step of
/// bounded length. So a thread that holds the lock knows that no transfer touches the granted
/// memory, and data of one session never waits for another.
class ServedSession : public std::enable_shared_from_this<ServedSession> {
 public:
  static constexpr std::size_t kMaxLanes = 8;

  /// Errors: kSystem.
  static Result<std::shared_ptr<ServedSession>> create(ThreadSeat seat = {});
  ServedSession(UniqueFd event, ThreadSeat seat) noexcept
      : event_{std::move(event)}, seat_{std::move(seat)} {}

  /// Errors: kLimitExceeded; kConnectionLost (ended); kInvalidArgument: of GrantRequest::keys.
  Result<Grant> grant(const GrantRequest& request);
  /// On return no transfer touches what these keys reached. One that did ends with its lane.
  void revoke(std::span<const std::uint32_t> keys) noexcept;

  /// Errors: kLimitExceeded (kMaxLanes); kConnectionLost (ended).
  Status add_lane(const std::shared_ptr<ServerLane>& lane);
  /// A lane has ended by itself, and the session with it.
  void lane_ended(const ServerLane& lane) noexcept;
  /// Ends the lanes; on return they touch nothing any more. Idempotent.
  void end() noexcept;
  /// After end(): takes lanes again, for the grants it has.
  void begin_again() noexcept;

  /// For a lane that is served. False: too many wait to be handled; the lane is parked.
  [[nodiscard]] bool put_notice(const Notice& notice);
  /// Control thread. How many were taken, and whether lanes may have been parked before.
  std::pair<std::size_t, bool> take_notices(std::span<Notice> notices) noexcept;

  /// Index of the thread that serves its lanes, for its whole life.
  [[nodiscard]] std::size_t thread() const noexcept { return seat_.thread(); }

  /// Readable from the end of a lane on, and when there are notices.
  [[nodiscard]] int event_fd() const noexcept { return event_.get(); }
  [[nodiscard]] bool broken() const noexcept { return broken_.load(std::memory_order_acquire); }
  /// Takes the event of notices; that of an end stays.
  void take_event() noexcept;

  /// For the thread that serves: a step of a lane, which says what it has served. False: others
  /// want the session, come again.
  template <typename Step>
  bool serve(Step&& step) {
    // The lock is not fair: this thread, which just had it, would nearly always get it again.
    if (wanted_.load(std::memory_order_relaxed) != 0) return false;
    const remora::detail::MutexLock lock{mutex_};
    add_counts(step(static_cast<const GrantTable&>(grants_)));
    return true;
  }
  /// What was served so far, without refusals. Any thread; never blocks.
  [[nodiscard]] ServedCounts served() const noexcept;

 private:
  /// The session's lock, for others than the thread that serves.
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
  /// By the thread that serves alone, so nothing need be locked.
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
