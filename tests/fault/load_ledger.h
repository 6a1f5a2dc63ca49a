#pragma once

/// What the workers of a load share: counts, violations, and what the session became.

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include <remora/metrics/registry.h>
#include <remora/result.h>

#include "client_counts.h"
#include "history.h"
#include "load.h"

namespace remora::fault {

enum class LoadKind : std::uint8_t { kRead, kWrite, kSwap, kAdd, kNotify, kZeroes };
[[nodiscard]] const char* to_string(LoadKind kind) noexcept;
/// All of them, for the cells of a LoadPage.
inline constexpr std::array kLoadKinds{LoadKind::kRead, LoadKind::kWrite,  LoadKind::kSwap,
                                       LoadKind::kAdd,  LoadKind::kNotify, LoadKind::kZeroes};

/// In a varied load, of the writes of a block: each of so many is a write_zeroes, and each of so
/// many that is none a write_notify.
inline constexpr std::uint64_t kZeroesEach = 4;
inline constexpr std::uint64_t kNotifyEach = 2;

/// Thread-safe.
class LoadLedger {
 public:
  using Clock = std::chrono::steady_clock;

  explicit LoadLedger(const LoadOptions& options);

  /// An operation is about to be handed over.
  void begun(LoadKind kind) noexcept { ++page_.kind(static_cast<std::size_t>(kind)).begun; }
  /// An operation has ended, with `status`. It was handed over at `submitted`.
  void ended(LoadKind kind, const Status& status, Clock::time_point submitted);
  void violation(const std::string& text);
  void checked_block() noexcept { ++blocks_checked_; }

  /// The session's end was said by its engine: workers finish and come back.
  void session_over() noexcept { over_ = true; }
  void session_begins() noexcept { over_ = false; }
  /// What a handler was told of a session.
  void interrupted(Reason reason);
  void resumed();
  void session_ended(Reason reason);  ///< lost or stale
  /// Waits until all was told that the engine has counted: nothing is, once a session is closed.
  void hear_all(const metrics::Registry& registry);
  [[nodiscard]] bool over() const noexcept { return over_ || stop_; }
  void stop() noexcept;
  [[nodiscard]] bool stopped() const noexcept { return stop_; }
  /// Operations that were ok so far.
  [[nodiscard]] std::uint64_t ok_count() const noexcept { return ok_; }

  /// Writes or atomics have ended as Indeterminate since the last call.
  [[nodiscard]] bool take_uncertain() noexcept { return uncertain_.exchange(false); }
  [[nodiscard]] LoadPage& page() noexcept { return page_; }
  /// What the engine has counted is what was seen here (I9): ends of operations by status, and what
  /// became of sessions by reason. All of its sessions are closed.
  void compare(const metrics::Registry& registry);
  void fill(LoadReport& report);
  /// Operations that were late only while the process was not run.
  [[nodiscard]] std::uint64_t excused() const noexcept { return excused_; }

  std::atomic<std::uint64_t> memory{0};  ///< the life that records belong to

 private:
  /// Of the time since `submitted`, what this process was not run.
  [[nodiscard]] std::chrono::nanoseconds stood_still(Clock::time_point submitted) const;

  const LoadOptions& options_;
  LoadPage page_;
  std::atomic<bool> over_{false};
  std::atomic<bool> stop_{false};
  std::atomic<bool> uncertain_{false};
  std::atomic<std::uint64_t> blocks_checked_{0};
  std::atomic<std::uint64_t> ended_{0};
  std::atomic<std::uint64_t> ok_{0};
  std::atomic<std::uint64_t> excused_{0};
  std::atomic<std::int64_t> last_ok_ns_;
  std::atomic<std::int64_t> longest_silence_ns_{0};
  std::atomic<std::int64_t> longest_overrun_ns_{0};
  std::atomic<std::int64_t> longest_verdict_ns_{0};
  std::mutex mutex_;
  std::map<Code, std::uint64_t> failed_;
  std::map<Code, std::string> first_failed_;  ///< kind, time and message
  SessionEvents session_events_;
  std::vector<std::string> violations_;
  std::uint64_t violations_total_ = 0;
};

}  // namespace remora::fault
