#pragma once

/// The memory of one region: shares of the pool, or a memfd of its own (shm).

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "server/memory/pool_share.h"
#include "server/memory/shared_memory.h"
#include "transport/grant.h"

namespace remora::detail {

/// Immutable. A region that grows or shrinks gets another object, which keeps the pool shares of
/// this one.
class RegionMemory {
 public:
  using Shares = std::vector<std::shared_ptr<PoolShare>>;
  RegionMemory(std::shared_ptr<Pool> pool, std::uint64_t size_bytes, Shares shares,
               std::unique_ptr<SharedMemory> own);
  ~RegionMemory();
  RegionMemory(const RegionMemory&) = delete;
  RegionMemory& operator=(const RegionMemory&) = delete;

  [[nodiscard]] std::uint64_t size_bytes() const noexcept { return size_bytes_; }
  /// The bytes of the pool that it uses: whole pages.
  [[nodiscard]] std::uint64_t pool_bytes() const noexcept;
  /// In order; together size_bytes() long.
  [[nodiscard]] std::span<const transport::MemoryStretch> stretches() const noexcept {
    return stretches_;
  }
  /// The memfd that other processes may map, or -1.
  [[nodiscard]] int shareable_fd() const noexcept { return own_ == nullptr ? -1 : own_->fd(); }
  [[nodiscard]] bool shareable() const noexcept { return own_ != nullptr; }
  [[nodiscard]] const Shares& shares() const noexcept { return shares_; }

 private:
  std::shared_ptr<Pool> pool_;
  std::uint64_t size_bytes_;
  Shares shares_;
  std::unique_ptr<SharedMemory> own_;
  std::vector<transport::MemoryStretch> stretches_;
};

}  // namespace remora::detail
