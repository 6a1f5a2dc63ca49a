#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include <remora/result.h>

namespace remora::apps {

/// An open descriptor; closed with the object unless it is a standard stream.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) noexcept : fd_{fd} {}
  ~Descriptor() { close(); }
  Descriptor(Descriptor&& other) noexcept : fd_{std::exchange(other.fd_, -1)} {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  [[nodiscard]] int get() const noexcept { return fd_; }
  /// Returns errno of close(2), or 0. Standard streams stay open.
  int close() noexcept;

 private:
  int fd_ = -1;
};

/// The Error of a call that has failed, from errno. `operation` ends in " file": by that
/// exit_code_of() distinguishes a file missing on this machine from a region missing on the server.
[[nodiscard]] Error file_error(Operation operation, const std::string& subject);

/// After a read(2) or write(2) that has failed: whether the caller must try again. If the
/// descriptor is non-blocking, waits for `events` (poll(2)). False after a signal that ends the
/// program.
[[nodiscard]] bool try_again(int fd, std::int16_t events);

/// Reads from offset `at` until `into` is full, or to the end. Returns the number of bytes. `name`:
/// that of the file, for the error. Errors: kSystem.
[[nodiscard]] Result<std::size_t> read_file_at(int fd, std::uint64_t at, std::span<std::byte> into,
                                               const std::string& name);

}  // namespace remora::apps
