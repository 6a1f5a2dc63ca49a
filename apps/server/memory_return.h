#pragma once

/// Returns free memory to the system after many clients have left. malloc keeps freed memory
/// between blocks in use, so that a server would stay as large as with its highest number of
/// clients.

#include <cstdint>
#include <functional>
#include <utility>

namespace remora::apps {

/// For one thread.
class MemoryReturn {
 public:
  /// Memory is returned after this many quiet checks in a row: sessions that have ended are
  /// released a little later, and those whose clients may return after limits.session_keep.
  static constexpr unsigned kLooks = 4;
  /// If fewer sessions have left, nothing is returned.
  static constexpr std::uint64_t kMinLeft = 16;

  /// `trim` returns the free memory.
  explicit MemoryReturn(std::function<void()> trim) : trim_{std::move(trim)} {}

  /// Called at regular intervals with the present number of sessions. Calls `trim` when the server
  /// is quiet (the number has not changed since the last check), and a quarter of the highest
  /// number since the last trim has left.
  void look(std::uint64_t sessions);

 private:
  std::function<void()> trim_;
  std::uint64_t max_sessions_ = 0;
  std::uint64_t last_ = 0;
  unsigned looks_left_ = 0;
};

}  // namespace remora::apps
