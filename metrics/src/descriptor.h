#pragma once

#include <unistd.h>
#include <utility>

#include <remora/standard_descriptors.h>

namespace remora::metrics {

/// An open descriptor, closed with the object. Never one of 0 to 2, which are the standard streams.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) noexcept : fd_{remora::detail::above_standard(fd)} {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(Descriptor&& other) noexcept : fd_{std::exchange(other.fd_, -1)} {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  [[nodiscard]] int fd() const noexcept { return fd_; }

 private:
  int fd_;
};

}  // namespace remora::metrics
