#pragma once

/// The lanes of one session.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <remora/engine/engine.h>
#include <remora/engine/types.h>
#include <remora/mutex.h>
#include <remora/result.h>

#include "base/clock.h"
#include "client/datapath/lane_driver.h"
#include "client/datapath/many_batches.h"
#include "client/session/lane_ender.h"
#include "transport/lane.h"
#include "transport/work_request.h"

namespace remora::detail {

class SessionCore;

/// Opens the drivers of a session's lanes, and breaks, ends and resumes all of them together. If
/// one lane breaks in a call that may not wait, the others break when that lane has ended: until
/// then an operation may succeed on them beside one whose outcome is unknown. settled() waits for
/// that. The session owns it. Thread-safe, unless a function says otherwise.
class SessionLanes {
 public:
  /// A lane that keeps so many reads and atomics in flight, or fewer, keeps few: further ones hold
  /// up all requests behind them. ConnectX NICs keep 16, the others of hardware.md over a hundred.
  static constexpr std::uint32_t kFewReads = 16;
  /// What a lane is wanted for. kReads: also atomics, and reads and writes together.
  enum class Use : std::uint8_t { kReads, kWrites };
  [[nodiscard]] static constexpr Use use_of(transport::Opcode opcode) noexcept {
    return transport::is_write(opcode) ? Use::kWrites : Use::kReads;
  }
  /// Of a queue that takes operations of a region with these rights.
  [[nodiscard]] static constexpr Use use_of(Rights rights) noexcept {
    return rights == Rights::kWrite ? Use::kWrites : Use::kReads;
  }

  explicit SessionLanes(SessionCore& session);
  SessionLanes(const SessionLanes&) = delete;
  SessionLanes& operator=(const SessionLanes&) = delete;

  /// Opens the first lanes of a session that begins. Errors: those of ClientEndpoint::open_lane();
  /// kConnectionLost: the session has ended meanwhile.
  Status open(Deadline deadline);
  /// Opens the next lanes of an interrupted session, for replace(); none if memory is mapped.
  Result<std::vector<std::unique_ptr<transport::Lane>>> open_again(Deadline deadline);

  /// Only once the session has begun:

  /// A completion on one lane says nothing about operations on another. clang does not check this
  /// function: once the session has begun, lanes_ does not change.
  [[nodiscard]] const std::vector<std::unique_ptr<LaneDriver>>& all() const noexcept
      REMORA_NO_THREAD_SAFETY_ANALYSIS {
    return lanes_;
  }
  /// A region was opened with these rights. Where lanes keep few reads in flight, the session has
  /// more than one, and its regions are opened for writing alone and otherwise, the last half of
  /// the lanes takes writes alone from now on, and the first half the other operations.
  void note_opened(Rights rights) noexcept {
    opened_.fetch_or(rights == Rights::kWrite ? kForWrites : kForReads, std::memory_order_relaxed);
  }
  /// The lane for one more queue: queues use the lanes one after another. `atomics_on`: the number
  /// of a device of the server to which the lane should lead, if any lane does when all rails work;
  /// 0: any device.
  [[nodiscard]] LaneDriver& next(Use use, std::uint32_t atomics_on = 0) noexcept;
  /// The lane for synchronous operations of this thread; with rails, a lane on a device of the
  /// memory node on which the thread began. The same until the session is interrupted, or until
  /// note_opened() parts the lanes.
  [[nodiscard]] LaneDriver& of_thread(Use use) const noexcept {
    if (all().size() == 1) return *all().front();
    if (on_rails_) return near_thread();
    const auto lanes = lanes_for(use);
    return *lanes[thread_number() % lanes.size()];
  }
  /// A lane that now leads to this device of the server, preferably one that stays there when other
  /// rails return; null: there is none.
  [[nodiscard]] LaneDriver* leading_to(std::uint32_t server_device) const noexcept;
  /// Whether lanes may use several devices.
  [[nodiscard]] bool on_rails() const noexcept { return on_rails_; }
  /// Whether the lanes carry out operations that return bytes: reads and atomics.
  [[nodiscard]] bool take_reads() const noexcept { return reads_; }
  /// False: the new lanes can do less than the old ones.
  [[nodiscard]] bool replace(std::vector<std::unique_ptr<transport::Lane>> lanes) noexcept;

  /// Also while the session begins. Any thread:
  [[nodiscard]] bool any_broken() const noexcept;
  [[nodiscard]] bool any_breaking() const noexcept;
  /// The fault of an operation that broke the first of the lanes, if there was one.
  [[nodiscard]] LaneFault fault() const noexcept;
  /// With rails, first lets posted requests complete on lanes that work.
  void interrupt(Reason reason, LaneFault fault) noexcept;
  /// hold() of all lanes. False: one lane could not be held, and all post again.
  [[nodiscard]] bool hold(Deadline until) noexcept;
  void fail(Reason reason, LaneFault fault) noexcept;
  /// The destructor of the session calls it.
  void close() noexcept;

  /// Records for calls with many pairs, on any lane. Any thread.
  [[nodiscard]] ManyBatches& many_batches() noexcept { return many_batches_; }

 private:
  // Bits of opened_.
  static constexpr std::uint8_t kForReads = 1;
  static constexpr std::uint8_t kForWrites = 2;
  [[nodiscard]] bool parted() const noexcept {
    return few_reads_ && opened_.load(std::memory_order_relaxed) == (kForReads | kForWrites);
  }
  [[nodiscard]] std::span<const std::unique_ptr<LaneDriver>> lanes_for(Use use) const noexcept;
  [[nodiscard]] static std::size_t thread_number() noexcept;
  [[nodiscard]] LaneDriver& near_thread() const noexcept;
  [[nodiscard]] std::array<LaneDriver*, kMaxLanes> opened_lanes() const noexcept;
  [[nodiscard]] LaneDriver::BrokenHandler broken_handler();
  Status add(std::unique_ptr<LaneDriver> driver);

  SessionCore& session_;
  LaneEnder ender_;
  std::array<std::atomic<std::size_t>, 2> queues_{};  ///< by Use, once the lanes are parted
  std::atomic<std::uint8_t> opened_{0};               ///< kForReads, kForWrites
  bool reads_ = true;
  bool few_reads_ = false;  ///< several lanes of one device, of which one keeps few reads in flight
  bool on_rails_ = false;   ///< set before the first lane is opened
  /// Locked while lanes_ is changed, and by callers that may read it meanwhile. Once the session
  /// has begun, lanes_ is complete, and all() reads it without the lock.
  mutable Mutex opening_;
  std::vector<std::unique_ptr<LaneDriver>> lanes_ REMORA_GUARDED_BY(opening_);
  ManyBatches many_batches_;
};

}  // namespace remora::detail
