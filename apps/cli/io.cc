#include "cli/io.h"

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/interrupt.h"

namespace remora::apps {
namespace {

/// Operations end in " file": exit_code_of() tells by it what is missing on which machine.
Error system_error(Operation operation, const std::string& subject) {
  const int number = errno;
  const Code code = number == ENOENT                      ? Code::kNotFound
                    : number == EACCES || number == EPERM ? Code::kPermissionDenied
                                                          : Code::kSystem;
  return Error{code, operation}.with_subject(subject).with_errno(number);
}

/// After a failed read(2) or write(2): whether to try again. Waits where the descriptor is
/// non-blocking.
bool try_again(int fd, decltype(pollfd::events) events) {
  if (errno == EINTR) return interrupted() == 0;
  if (errno != EAGAIN) return false;
  pollfd waited{.fd = fd, .events = events, .revents = 0};
  ::poll(&waited, 1, -1);
  return interrupted() == 0;
}

}  // namespace

int Descriptor::close() noexcept {
  const int fd = std::exchange(fd_, -1);
  if (fd <= STDERR_FILENO) return 0;
  return ::close(fd) == 0 ? 0 : errno;
}

Result<Input> Input::open(const std::string& path) {
  Input input;
  input.name_ = path == "-" ? "standard input" : path;
  input.file_ = Descriptor{path == "-" ? STDIN_FILENO : ::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (input.file_.get() < 0) return system_error("open file", path);
  struct stat status {};
  if (::fstat(input.file_.get(), &status) != 0) return system_error("stat file", input.name_);
  if (S_ISDIR(status.st_mode)) {
    errno = EISDIR;
    return system_error("open file", path);
  }
  if (S_ISREG(status.st_mode)) {
    const off_t at = std::max<off_t>(::lseek(input.file_.get(), 0, SEEK_CUR), 0);
    input.size_bytes_ = static_cast<std::uint64_t>(std::max<off_t>(status.st_size - at, 0));
  }
  return input;
}

bool Input::ready() const noexcept {
  if (size_bytes_) return true;
  pollfd waited{.fd = file_.get(), .events = POLLIN, .revents = 0};
  return ::poll(&waited, 1, 0) != 0;
}

Result<std::size_t> Input::read(std::span<std::byte> into) {
  std::size_t filled = 0;
  while (filled < into.size() && (filled == 0 || ready())) {
    const ssize_t got = ::read(file_.get(), into.data() + filled, into.size() - filled);
    if (got == 0) break;
    if (got > 0)
      filled += static_cast<std::size_t>(got);
    else if (!try_again(file_.get(), POLLIN))
      return interrupted() != 0 ? interruption() : system_error("read file", name_);
  }
  return filled;
}

Result<Output> Output::open(const std::string& path) {
  Output output;
  output.name_ = path == "-" ? "standard output" : path;
  if (path == "-") {
    output.file_ = Descriptor{STDOUT_FILENO};
    output.is_stdout_ = true;
    return output;
  }
  struct stat status {};
  const bool exists = ::stat(path.c_str(), &status) == 0;
  if (exists && !S_ISREG(status.st_mode)) {  // a device or a pipe is written to, not replaced
    output.file_ = Descriptor{::open(path.c_str(), O_WRONLY | O_CLOEXEC)};
    if (output.file_.get() < 0) return system_error("open file", path);
    return output;
  }
  output.target_ = path;
  if (exists) {  // a symbolic link stays one
    if (::access(path.c_str(), W_OK) != 0) return system_error("open file", path);
    char* const real = ::realpath(path.c_str(), nullptr);
    if (real != nullptr) output.target_ = real;
    std::free(real);  // NOLINT(cppcoreguidelines-no-malloc): realpath(3) says so
  }
  if (const Status made = output.open_temporary(exists, status.st_mode); !made) return made.error();
  return output;
}

Status Output::open_temporary(bool replaces, unsigned mode) {
  const std::size_t slash = target_.rfind('/');
  const std::size_t base = slash == std::string::npos ? 0 : slash + 1;
  std::string pattern =
      target_.substr(0, base) + "." + target_.substr(base).substr(0, NAME_MAX - 16) + ".XXXXXX";
  file_ = Descriptor{::mkostemp(pattern.data(), O_CLOEXEC)};
  if (file_.get() < 0) return system_error("create file", name_);
  temporary_ = std::move(pattern);
  if (!replaces) {
    const mode_t mask = ::umask(0);
    ::umask(mask);
    mode = 0666U & ~mask;
  }
  if (::fchmod(file_.get(), mode & 07777U) != 0) return system_error("chmod file", name_);
  return ok_status();
}

Output::Output(Output&& other) noexcept
    : file_{std::move(other.file_)},
      name_{std::move(other.name_)},
      target_{std::move(other.target_)},
      temporary_{std::exchange(other.temporary_, {})},
      is_stdout_{other.is_stdout_} {}

Output::~Output() {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

Status Output::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t put = ::write(file_.get(), bytes.data(), bytes.size());
    if (put >= 0)
      bytes = bytes.subspan(static_cast<std::size_t>(put));
    else if (!try_again(file_.get(), POLLOUT))
      return interrupted() != 0 ? interruption() : system_error("write file", name_);
  }
  return ok_status();
}

Status Output::commit() {
  if (temporary_.empty()) {
    errno = file_.close();
    return errno == 0 ? ok_status() : system_error("close file", name_);
  }
  // The name must not appear before the bytes, also after a power failure.
  if (::fsync(file_.get()) != 0) return system_error("fsync file", name_);
  if (errno = file_.close(); errno != 0) return system_error("close file", name_);
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) return system_error("rename file", name_);
  temporary_.clear();
  return ok_status();
}

}  // namespace remora::apps
