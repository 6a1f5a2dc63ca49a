#pragma once

/// Sockets whose every wait ends at a deadline or when the endpoint stops.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <unistd.h>
#include <utility>

#include <remora/result.h>
#include <remora/standard_descriptors.h>

#include "http_address.h"

namespace remora::metrics {

using Deadline = std::chrono::steady_clock::time_point;

/// The longest request that is read.
inline constexpr std::size_t kRequestBytesMax = std::size_t{16} << 10;

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

/// Says "stop" to every thread that waits.
class StopSignal {
 public:
  /// Errors: kSystem.
  static Result<StopSignal> create();
  void raise() const noexcept;
  [[nodiscard]] int fd() const noexcept { return event_.fd(); }

 private:
  explicit StopSignal(Descriptor event) noexcept : event_{std::move(event)} {}
  Descriptor event_;
};

enum class Wait { kReady, kTimedOut, kStopped };

/// Waits for `events` (poll(2)) on `fd`; fd -1 waits for the deadline only.
Wait wait_for(int fd, std::int16_t events, const StopSignal& stop, Deadline deadline) noexcept;

/// Listens on `address`, non-blocking, and writes back the port it got.
/// Errors: kAddressInUse, kPermissionDenied, kUnreachable, kUnsupported (no IPv6 here), kSystem.
Result<Descriptor> listen_on(SocketAddress& address);

}  // namespace remora::metrics
