#pragma once

#include <cstdint>
#include <unistd.h>
#include <utility>

#include <remora/standard_descriptors.h>

namespace remora {

/// Owns a file descriptor, which is never 0, 1 or 2. Not thread-safe.
class UniqueFd {
 public:
  UniqueFd() = default;
  /// Takes the result of a call that makes a descriptor; if the call has failed, errno stays as it
  /// is. A descriptor 0, 1 or 2 is replaced by a higher one.
  explicit UniqueFd(int fd) noexcept : fd_{detail::above_standard(fd)} {}
  ~UniqueFd() { reset(); }
  UniqueFd(UniqueFd&& other) noexcept : fd_{std::exchange(other.fd_, -1)} {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  UniqueFd(const UniqueFd&) = delete;
  UniqueFd& operator=(const UniqueFd&) = delete;

  [[nodiscard]] int get() const noexcept { return fd_; }
  [[nodiscard]] explicit operator bool() const noexcept { return fd_ >= 0; }
  void reset() noexcept {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

 private:
  int fd_ = -1;
};

/// Makes an eventfd readable. It is no error if it was readable already.
inline void signal_event(int event) noexcept {
  const std::uint64_t one = 1;
  (void)!::write(event, &one, sizeof one);
}

}  // namespace remora
