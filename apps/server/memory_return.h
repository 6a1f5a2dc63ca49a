#pragma once

/// Returns free memory to the system after many clients have left. malloc keeps what was freed
/// between blocks that are in use, so that a server would stay as large as with the most clients it
/// ever had.

#include <cstdint>
#include <functional>
#include <utility>

namespace remora::apps {

/// Of one thread.
class MemoryReturn {
 public:
  /// So many looks in a row return memory: sessions that have ended are released a little later,
  /// and those whose clients may come back after limits.session_keep.
  static constexpr unsigned kLooks = 4;
  /// Fewer sessions than that are not worth it.
  static constexpr std::uint64_t kMinLeft = 16;

  /// `trim` returns what is free.
  explicit MemoryReturn(std::function<void()> trim) : trim_{std::move(trim)} {}

  /// At regular intervals: there are so many sessions now. Calls `trim` when the server is quiet,
  /// no session having come or gone since the last look, and a quarter of the most sessions since
  /// the last time have left.
  void look(std::uint64_t sessions);

 private:
  std::function<void()> trim_;
  std::uint64_t max_sessions_ = 0;
  std::uint64_t last_ = 0;
  unsigned looks_left_ = 0;
};

}  // namespace remora::apps
