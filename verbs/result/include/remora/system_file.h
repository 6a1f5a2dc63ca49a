#pragma once

/// Reads small files of the kernel and the application at once, with descriptors that are closed on
/// exec.

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <fcntl.h>
#include <optional>
#include <string>
#include <unistd.h>

#include <remora/standard_descriptors.h>

namespace remora::detail {

/// The bytes of the file at `path`, at most `max_bytes`; empty, with errno, if it cannot be opened
/// or read. Not std::ifstream: its descriptor is inherited by a program that another thread starts
/// meanwhile.
[[nodiscard]] inline std::optional<std::string> read_file(const char* path,
                                                          std::size_t max_bytes = std::size_t{1}
                                                                                  << 20U) {
  const int fd = above_standard(::open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY));
  if (fd < 0) return std::nullopt;
  constexpr std::size_t kStepBytes = 4096;
  std::string text;
  std::size_t length = 0;
  ssize_t count = 1;
  while (count != 0 && length < max_bytes) {
    text.resize(std::min(length + kStepBytes, max_bytes));
    count = ::read(fd, text.data() + length, text.size() - length);
    if (count < 0 && errno != EINTR) break;
    if (count > 0) length += static_cast<std::size_t>(count);
  }
  const int number = errno;
  ::close(fd);
  errno = number;
  if (count < 0) return std::nullopt;
  text.resize(length);
  return text;
}

}  // namespace remora::detail
