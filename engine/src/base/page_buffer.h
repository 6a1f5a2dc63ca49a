#pragma once

/// A buffer on its own pages: only pages that were used are resident, and its destruction returns
/// them to the system. malloc would keep large freed blocks in its arenas, so that a server stayed
/// as large as it was with the most sessions.

#include <cstddef>
#include <utility>

namespace remora::detail {

/// Owns bytes that are zero at first. Move-only; after a move the source is empty. Not thread-safe.
class PageBuffer {
 public:
  PageBuffer() = default;
  /// If the process may have no further mapping (vm.max_map_count), the bytes come from malloc.
  explicit PageBuffer(std::size_t size_bytes);
  ~PageBuffer() { release(); }
  PageBuffer(PageBuffer&& other) noexcept
      : data_{std::exchange(other.data_, nullptr)},
        size_{std::exchange(other.size_, 0)},
        mapped_{other.mapped_} {}
  PageBuffer& operator=(PageBuffer&& other) noexcept {
    if (this == &other) return *this;
    release();
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
    mapped_ = other.mapped_;
    return *this;
  }
  PageBuffer(const PageBuffer&) = delete;
  PageBuffer& operator=(const PageBuffer&) = delete;

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

 private:
  void release() noexcept;

  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  bool mapped_ = false;
};

}  // namespace remora::detail
