#include "common/standard_streams.h"

#include <fcntl.h>
#include <unistd.h>

namespace remora::apps {

void open_closed_standard_streams() noexcept {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (::fcntl(fd, F_GETFD) >= 0) continue;
    // Opened in the opposite direction: otherwise /dev/null would discard output, and be an empty
    // input.
    const int mode = fd == STDIN_FILENO ? O_WRONLY : O_RDONLY;
    // The lowest free number is this one. Without /dev (a chroot) any file will do.
    if (::open("/dev/null", mode) < 0) (void)!::open("/", O_PATH);
  }
}

}  // namespace remora::apps
