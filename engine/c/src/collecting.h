#pragma once

#include <atomic>

namespace remora::c {

/// A call that returns completions, from its beginning to its end: what it collects belongs to it.
class Collecting {
 public:
  explicit Collecting(std::atomic<bool>& collecting) noexcept
      : collecting_{collecting}, first_{!collecting.exchange(true, std::memory_order_acquire)} {}
  ~Collecting() {
    if (first_) collecting_.store(false, std::memory_order_release);
  }
  Collecting(const Collecting&) = delete;
  Collecting& operator=(const Collecting&) = delete;
  /// False: another thread is in such a call.
  [[nodiscard]] explicit operator bool() const noexcept { return first_; }

 private:
  std::atomic<bool>& collecting_;
  bool first_;
};

}  // namespace remora::c
