#pragma once

/// Keeps what the library opens away from the standard descriptors 0, 1 and 2.
///
/// A program that was started with one of them closed (`program >&-`) would get its next socket or
/// file as that number, and what the program prints would go into it.

#include <cerrno>
#include <fcntl.h>
#include <unistd.h>

namespace remora::detail {

/// Takes `fd`, as the call that made it returned it, and returns it where it is above 2, or
/// negative. Else it returns a close-on-exec copy above 2 and closes `fd`; -1 with errno where
/// there is no such copy (EMFILE).
[[nodiscard]] inline int above_standard(int fd) noexcept {
  if (fd < 0 || fd > STDERR_FILENO) [[likely]]
    return fd;
  const int above = ::fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  const int number = errno;
  ::close(fd);
  errno = number;
  return above;
}

}  // namespace remora::detail
