#include "cli/descriptor.h"

#include <cerrno>
#include <poll.h>
#include <unistd.h>

#include "cli/interrupt.h"

namespace remora::apps {

int Descriptor::close() noexcept {
  const int fd = std::exchange(fd_, -1);
  if (fd <= STDERR_FILENO) return 0;
  return ::close(fd) == 0 ? 0 : errno;
}

Error file_error(Operation operation, const std::string& subject) {
  const int number = errno;
  const Code code = number == ENOENT                      ? Code::kNotFound
                    : number == EACCES || number == EPERM ? Code::kPermissionDenied
                                                          : Code::kSystem;
  return Error{code, operation}.with_subject(subject).with_errno(number);
}

bool try_again(int fd, std::int16_t events) {
  if (errno == EINTR) return interrupted() == 0;
  if (errno != EAGAIN) return false;
  pollfd waited{.fd = fd, .events = events, .revents = 0};
  ::poll(&waited, 1, -1);
  return interrupted() == 0;
}

Result<std::size_t> read_file_at(int fd, std::uint64_t at, std::span<std::byte> into,
                                 const std::string& name) {
  std::size_t filled = 0;
  while (filled < into.size()) {
    const ssize_t got =
        ::pread(fd, into.data() + filled, into.size() - filled, static_cast<off_t>(at + filled));
    if (got == 0) break;
    if (got > 0)
      filled += static_cast<std::size_t>(got);
    else if (errno != EINTR)
      return file_error("read file", name);
  }
  return filled;
}

}  // namespace remora::apps
