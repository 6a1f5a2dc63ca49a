#pragma once

/// Keeps descriptors that the library opens away from the standard descriptors 0, 1 and 2.
///
/// A program that was started with one of them closed (`program >&-`) would get its next socket or
/// file under that number, and the program's output would go into it.

#include <cerrno>
#include <fcntl.h>
#include <unistd.h>

namespace remora::detail {

/// Takes `fd`, the result of the call that has made it, and returns it if it is above 2, or
/// negative. Otherwise it returns a close-on-exec copy above 2 and closes `fd`; -1 with errno if
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
