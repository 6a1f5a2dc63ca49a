#pragma once

/// A bounded load on one region that knows what must hold: it verifies every block it reads (I1),
/// that each operation ends exactly once (I2) and no later than its deadline allows (I3), that no
/// buffer changes after its operation has ended (I4), that failures are of the kinds they may be
/// (I6), that the engine's metrics count each of them and of its sessions' turns once and as what
/// they were (I9), and records its atomics (I10).
/// When all has ended it reads every block once more and, where it has made atomics, every word.
///
/// It goes on through faults: a session that has ended is followed by another one. Where the memory
/// is new, what was written before is expected to be gone, and never to be answered for.

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace remora::test {
class StallWatch;
}

namespace remora::fault {

/// Time that an operation may take beyond its deadline.
inline constexpr std::chrono::seconds kGrace{2};

struct LoadOptions {
  std::string uri{};  ///< of a region of at least blocks_needed() blocks
  std::chrono::milliseconds duration = std::chrono::seconds{10};
  std::uint64_t seed = 1;
  std::uint32_t queue_workers = 2;  ///< threads with a queue each
  std::uint32_t sync_workers = 2;   ///< threads with synchronous calls
  std::uint32_t depth = 64;         ///< of a queue
  std::uint32_t lanes = 1;
  std::chrono::milliseconds deadline = std::chrono::seconds{2};
  std::chrono::milliseconds control_deadline = std::chrono::seconds{5};
  std::chrono::milliseconds reconnect_for = std::chrono::seconds{30};
  /// In which parts operations are reads, writes, compare_swap and fetch_add.
  std::uint32_t reads = 4, writes = 4, swaps = 1, adds = 1;
  /// Writes of a block are write, write_notify and write_zeroes, in turn.
  bool varied = false;
  std::uint64_t rate = 20'000;    ///< most operations a second, of all workers
  std::uint64_t operations = 0;   ///< ends when so many have ended; 0: with its time only
  std::uint64_t first_block = 1;  ///< blocks before it are others'; the words are in block 0
  /// The region is new and zero, and so is its word: else its blocks are written first, and no
  /// other process may use its words.
  bool fresh = false;
  /// Another session follows one that has ended.
  bool reopen = true;
  /// Where blocks and atomics are recorded, so that another process can judge; empty: nowhere else.
  std::string page{};
  std::uint64_t records = 200'000;  ///< most atomics
  /// How long this process itself is made to stand still, at most: added to what I3 allows.
  std::chrono::milliseconds paused{0};
  /// What this process was not run, by accident: an operation is late only by what is left without
  /// it (I3). Must outlive the load; null: none of it is excused.
  const test::StallWatch* stalls = nullptr;
  std::string client{"fault-load"};
  /// Called when the last operation has ended, before every block is read once more: what has been
  /// broken may be mended then.
  std::function<void()> at_rest{};
  /// Called each second with the number of operations that were ok since the last call.
  std::function<void(std::uint64_t ok)> each_second{};
  /// Called with each violation when it is found, by any thread, one at a time: of a load that is
  /// killed there is no report.
  std::function<void(const std::string&)> on_violation{};
};

/// Blocks that a load uses, from first_block on.
[[nodiscard]] std::uint64_t blocks_needed(const LoadOptions& options) noexcept;
/// Block size that a load needs.
inline constexpr std::uint64_t kLoadBlockBytes = 4096;

struct LoadReport {
  std::string transport{};
  std::uint64_t seed = 0;
  std::uint64_t operations = 0;
  std::uint64_t ok = 0;
  std::map<std::string, std::uint64_t> failed{};  ///< by the code's text
  std::map<std::string, std::string> first_failed{};
  std::uint64_t longest_verdict_ms = 0;  ///< from submission to the end of one that failed
  std::uint64_t longest_overrun_ms = 0;  ///< beyond an operation's deadline
  std::uint64_t excused = 0;  ///< late only while this process was not run; not in json()
  std::uint64_t atomics = 0;  ///< recorded
  std::uint64_t blocks_checked = 0;
  std::uint64_t lives = 0;  ///< of the memory
  std::uint64_t opened = 0, open_failures = 0;
  std::uint64_t interrupted = 0, resumed = 0, lost = 0, stale = 0, drained = 0;
  std::map<std::string, std::uint64_t>
      session_events{};                  ///< of sessions, by what and the reason's text
  std::uint64_t clock_jumps = 0;         ///< of the wall clock, by a minute or more
  std::int64_t heap_growth_bytes = 0;    ///< of live allocations; of a process of its own
  std::uint64_t longest_silence_ms = 0;  ///< in which no operation was ok
  std::uint64_t longest_stall_ms = 0;    ///< that the load's process was not run
  bool looked_around = false;            ///< every block and word was read once more at the end
  std::string look_error{};              ///< what kept it from that
  std::uint64_t violations_total = 0;
  std::vector<std::string> violations{};  ///< the first of them

  [[nodiscard]] std::string json() const;  ///< one line
  static LoadReport from_json(const std::string& line);
};

/// Runs it in threads of its own until its time is over or `stop` says so (it is asked every few
/// milliseconds). `ready` is called once, when the first operations are under way. Blocks. With
/// `page` in the options, histories are left to its reader; else they are checked here.
LoadReport run_load(const LoadOptions& options, const std::function<bool()>& stop,
                    const std::function<void()>& ready);

}  // namespace remora::fault
