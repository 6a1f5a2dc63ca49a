#pragma once

/// A buffer on pages of its own: resident only where it was used, and returned to the system when
/// it goes. malloc keeps large freed blocks in its arenas: a server would stay as large as it was
/// with the most sessions it ever had.

#include <cstddef>
#include <utility>

namespace remora::detail {

/// Bytes that are zero at first. Move-only; one that was moved from is empty.
class PageBuffer {
 public:
  PageBuffer() = default;
  /// Without room for another mapping (vm.max_map_count) the bytes are malloc's.
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
