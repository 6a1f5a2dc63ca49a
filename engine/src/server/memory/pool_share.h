#pragma once

/// Extents that were allocated from the pool together.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace remora::detail {

class Pool;

/// A contiguous part of the pool.
struct PoolExtent {
  std::uint64_t offset_bytes;
  std::uint64_t length_bytes;
};

/// Releases its extents to the pool when its last holder is destroyed. Not thread-safe.
class PoolShare {
 public:
  PoolShare(std::shared_ptr<Pool> pool, std::vector<PoolExtent> extents) noexcept;
  ~PoolShare();
  PoolShare(const PoolShare&) = delete;
  PoolShare& operator=(const PoolShare&) = delete;
  [[nodiscard]] std::span<const PoolExtent> extents() const noexcept { return extents_; }
  [[nodiscard]] std::uint64_t length_bytes() const noexcept;
  /// Releases all bytes behind the first `keep_bytes`.
  void cut(std::uint64_t keep_bytes);
  /// The pages have already gone back to the system.
  void mark_punched() noexcept { punched_ = true; }

 private:
  std::shared_ptr<Pool> pool_;
  std::vector<PoolExtent> extents_;
  bool punched_ = false;
};

}  // namespace remora::detail
