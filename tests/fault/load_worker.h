#pragma once

/// One thread of a load, and what it knows of its own blocks.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <remora/remora.h>

#include "load_ledger.h"
#include "stamp.h"
#include "support/pattern.h"

namespace remora::fault {

/// Words in block 0 that all workers of all clients count in.
inline constexpr std::uint64_t kLoadWords = 4;
inline constexpr std::uint64_t kLoadWordStride = 64;

/// Belongs to one thread at a time. Keeps what it knows when a session is followed by another.
class LoadWorker {
 public:
  /// Blocks [first, first + count) of the region are its own. `depth` 0: synchronous calls.
  LoadWorker(const LoadOptions& options, LoadLedger& ledger, std::uint32_t index,
             std::uint64_t first, std::uint64_t count, std::uint32_t depth);

  /// The memory is new: all of its blocks are zero again. `session`: of its stamps from now on.
  void new_life(std::uint64_t session);
  /// Writes each of its blocks once, where what stands there is not known. Errors: the write's.
  Status take_over(const Region& region);
  /// Works until the ledger says that the session or the load is over.
  void run(const Engine& engine, const Region& region);
  /// Reads each of its blocks once, in quiet, and looks at it. Errors: the read's.
  Status look(const Region& region);

  /// Blocks that it needs for queues of this depth.
  [[nodiscard]] static std::uint64_t blocks_for(std::uint32_t depth) noexcept {
    return depth == 0 ? 16 : 2 * std::uint64_t{depth};
  }

 private:
  using Clock = LoadLedger::Clock;
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

  /// A buffer between operations: what it was left with must be what is found there later (I4).
  struct Resting {
    std::size_t index = 0;
    std::uint32_t sum = 0;
  };
  struct Operation {
    LoadKind kind = LoadKind::kRead;
    bool open = false;
    std::uint32_t generation = 0;
    std::size_t block = kNone;
    std::size_t buffer = kNone;
    std::uint64_t sequence = 0;
    std::uint64_t word = 0;
    std::uint64_t expected = 0;
    AtomicRecord* record = nullptr;
    Clock::time_point submitted{};
  };

  void work_queued(const Engine& engine, const Region& region);
  void work_synchronously(const Region& region);
  /// A new operation in place `at` of the table; false: there is nothing to do just now.
  bool begin(std::size_t at);
  void take(Queue& queue, std::size_t at);
  Ticket take_write(Queue& queue, const Operation& one, std::uint64_t tag);
  Status carry_out_write(const Region& region, const Operation& one);
  [[nodiscard]] LoadKind kind_of_write(const BlockModel& model, std::uint64_t sequence) const;
  void complete(const Completion& completion);
  void carry_out(const Region& region);
  void finish(Operation& operation, const Status& status, std::uint64_t old_value);
  void finish_block(Operation& operation, const Status& status);
  void finish_atomic(Operation& operation, const Status& status, std::uint64_t old_value);
  void pace();
  [[nodiscard]] std::span<std::byte> buffer(std::size_t index) noexcept {
    return std::span{memory_}.subspan(index * kLoadBlockBytes, kLoadBlockBytes);
  }
  std::size_t take_buffer();
  void rest(std::size_t index);
  void look_at(std::size_t block, std::span<const std::byte> bytes, const char* when);

  const LoadOptions& options_;
  LoadLedger& ledger_;
  std::uint32_t index_;
  std::uint64_t first_;
  std::uint32_t depth_;
  test::Random random_;
  std::uint64_t session_ = 0;
  std::vector<BlockModel> models_;
  std::vector<std::size_t> idle_blocks_;
  std::vector<std::byte> memory_;
  std::deque<Resting> resting_;
  std::vector<Operation> operations_;
  std::vector<std::size_t> idle_operations_;
  std::array<std::uint64_t, kLoadWords> last_seen_{};
  std::optional<RegisteredMemory> registered_;
  Clock::time_point pace_from_{};
  std::uint64_t paced_ = 0;
  bool atomics_full_ = false;
  bool all_failed_ = false;
};

}  // namespace remora::fault
