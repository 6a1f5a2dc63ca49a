#pragma once

/// A load on one group of a claimed mirror, which leaves in a LoadPage what it was told.
///
/// Blocks of kMirrorBlock bytes stand at multiples of kMirrorStride; each belongs to one thread,
/// which writes stamps there. Words for fetch-and-add stand between them, and are of all threads.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "fault/history.h"
#include "fault/stamp.h"
#include "mirror_group.h"
#include "support/pattern.h"

namespace remora::fault {

inline constexpr std::uint64_t kMirrorBlock = 4096;
inline constexpr std::uint64_t kMirrorStride = 32U << 10U;
/// In the first 2 MiB of the group: two zones.
inline constexpr std::size_t kMirrorBlocks = 64;
inline constexpr std::size_t kMirrorWords = 4;
/// The memory of AtomicRecord: a group keeps its bytes.
inline constexpr std::uint64_t kMirrorMemory = 1;

[[nodiscard]] constexpr std::uint64_t mirror_word(std::size_t index) noexcept {
  return (index << 19U) + (16U << 10U);
}
/// A page for one load, in a file: other processes open it.
[[nodiscard]] LoadPage make_mirror_page(const std::string& path);

struct MirrorLoadOptions {
  std::uint64_t session = 1;  ///< of the stamps
  std::uint64_t seed = 1;
  std::uint32_t threads = 2;
  bool words_only = false;  ///< fetch-and-add alone: several processes may do that at once
  std::chrono::milliseconds deadline{20'000};
  std::chrono::microseconds pause{0};  ///< between two operations of a thread
};

struct MirrorLoadReport {
  std::uint64_t operations = 0;
  std::uint64_t ok = 0;
  std::uint64_t indeterminate = 0;
  std::uint64_t without_effect = 0;  ///< failed in another way
  std::uint64_t fenced = 0;          ///< threads that ended since the claim was lost
  std::uint64_t longest_ms = 0;
  std::uint64_t violations = 0;
  std::string text{};  ///< the first violation, and the first failure

  [[nodiscard]] std::string line() const;
  /// Nothing: it is none.
  static std::optional<MirrorLoadReport> of_line(const std::string& line);
};

/// Works from its creation until finish(), or until the claim is lost.
class MirrorLoad {
 public:
  /// All are borrowed.
  MirrorLoad(volume::detail::MirrorGroup& group, LoadPage& page, const MirrorLoadOptions& options);
  ~MirrorLoad();
  MirrorLoad(const MirrorLoad&) = delete;
  MirrorLoad& operator=(const MirrorLoad&) = delete;

  /// Ends it; each operation in flight ends first.
  MirrorLoadReport finish();

 private:
  void work(std::uint32_t thread);
  void step(std::uint32_t thread, test::Random& random);
  Status write_block(BlockModel& model, BlockCell& cell);
  Status read_block(BlockModel& model);
  Status add(std::uint32_t thread, test::Random& random);
  void note(const Status& done, std::chrono::nanoseconds took);
  void violated(const std::string& text);
  [[nodiscard]] volume::detail::MirrorGroup::Time until() const {
    return std::chrono::steady_clock::now() + options_.deadline;
  }

  volume::detail::MirrorGroup& group_;
  LoadPage& page_;
  const MirrorLoadOptions options_;
  std::vector<BlockModel> models_;  ///< each used by its thread only
  std::atomic<bool> over_{false};
  std::mutex mutex_;
  MirrorLoadReport report_;  ///< with mutex_
  std::vector<std::thread> threads_;
};

}  // namespace remora::fault
