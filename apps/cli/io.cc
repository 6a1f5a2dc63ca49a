#include "cli/io.h"

#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <poll.h>
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
  // Files of procfs say 0 and have something to read.
  if (S_ISREG(status.st_mode) && status.st_size > 0) {
    const off_t at = std::max<off_t>(::lseek(input.file_.get(), 0, SEEK_CUR), 0);
    input.size_bytes_ = static_cast<std::uint64_t>(std::max<off_t>(status.st_size - at, 0));
    input.modified_ = status.st_mtim;
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
    if (interrupted() != 0) return interruption();
    const ssize_t got = ::read(file_.get(), into.data() + filled, into.size() - filled);
    if (got == 0) break;
    if (got > 0)
      filled += static_cast<std::size_t>(got);
    else if (!try_again(file_.get(), POLLIN))
      return interrupted() != 0 ? interruption() : system_error("read file", name_);
  }
  return filled;
}

std::string Input::change_since_open(std::uint64_t bytes) const {
  if (!size_bytes_) return {};
  if (bytes != *size_bytes_)
    return std::string{bytes < *size_bytes_ ? "it became shorter" : "it became longer"} +
           " while it was read: " + std::to_string(*size_bytes_) +
           " bytes by its size when it was opened, " + std::to_string(bytes) +
           " bytes when its end was reached";
  struct stat now {};
  if (::fstat(file_.get(), &now) != 0 ||
      (now.st_mtim.tv_sec == modified_.tv_sec && now.st_mtim.tv_nsec == modified_.tv_nsec))
    return {};
  return "it was written to while it was read";
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
  if (!exists && errno != ENOENT) return system_error("open file", path);
  if (exists && !S_ISREG(status.st_mode)) {  // a device or a pipe is written to, not replaced
    output.file_ = Descriptor{::open(path.c_str(), O_WRONLY | O_CLOEXEC)};
    if (output.file_.get() < 0) return system_error("open file", path);
    return output;
  }
  if (!exists && path.ends_with('/')) {
    errno = EISDIR;
    return system_error("open file", path);
  }
  struct stat link {};
  if (!exists && ::lstat(path.c_str(), &link) == 0)
    return Error{Code::kNotFound,
                 "a symbolic link without a target is neither followed nor replaced; remove it, or "
                 "make its target: open file"}
        .with_subject(path);
  output.target_ = path;
  if (exists) {  // a symbolic link stays one
    if (::access(path.c_str(), W_OK) != 0) return system_error("open file", path);
    char* const real = ::realpath(path.c_str(), nullptr);
    if (real != nullptr) output.target_ = real;
    std::free(real);  // NOLINT(cppcoreguidelines-no-malloc): realpath(3) says so
  }
  output.replaces_ = exists;
  if (const Status made = output.open_hidden(exists ? &status : nullptr); !made)
    return made.error();
  return output;
}

std::string Output::temporary_pattern() const {
  const std::size_t slash = target_.rfind('/');
  const std::size_t base = slash == std::string::npos ? 0 : slash + 1;
  return target_.substr(0, base) + "." + target_.substr(base).substr(0, NAME_MAX - 16) + ".XXXXXX";
}

Status Output::open_hidden(const struct stat* replaced) {
  const std::size_t slash = target_.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : target_.substr(0, slash + 1);
  file_ = Descriptor{::open(folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, S_IRUSR | S_IWUSR)};
  if (file_.get() < 0) {  // a file system, or a kernel, that does not know O_TMPFILE
    std::string pattern = temporary_pattern();
    file_ = Descriptor{::mkostemp(pattern.data(), O_CLOEXEC)};
    if (file_.get() < 0) return system_error("create file", name_);
    temporary_ = std::move(pattern);
  }
  mode_t mode = 0;
  if (replaced == nullptr) {
    const mode_t mask = ::umask(0);
    ::umask(mask);
    mode = 0666U & ~mask;
  } else {
    struct stat made {};
    if (::fstat(file_.get(), &made) != 0) return system_error("stat file", name_);
    // Before the mode: a change of the owner clears set-user-ID.
    if ((made.st_uid != replaced->st_uid || made.st_gid != replaced->st_gid) &&
        ::fchown(file_.get(), replaced->st_uid, replaced->st_gid) != 0)
      return system_error("another user's, whose ownership cannot be kept: replace file", name_);
    mode = replaced->st_mode & 07777U;
  }
  if (::fchmod(file_.get(), mode) != 0) return system_error("chmod file", name_);
  return ok_status();
}

Output::Output(Output&& other) noexcept
    : file_{std::move(other.file_)},
      name_{std::move(other.name_)},
      target_{std::move(other.target_)},
      temporary_{std::exchange(other.temporary_, {})},
      is_stdout_{other.is_stdout_},
      replaces_{other.replaces_} {}

Output::~Output() {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

Status Output::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    // A write to a full pipe that a signal ends after a part of the bytes returns no EINTR.
    if (interrupted() != 0) return interruption();
    const ssize_t put = ::write(file_.get(), bytes.data(), bytes.size());
    if (put >= 0)
      bytes = bytes.subspan(static_cast<std::size_t>(put));
    else if (!try_again(file_.get(), POLLOUT))
      return interrupted() != 0 ? interruption() : system_error("write file", name_);
  }
  return ok_status();
}

namespace {

/// Gives the open file `fd` a name that no file has. Errors: errno, as linkat(2).
int link_open_file(int fd, const std::string& path) noexcept {
  if (::linkat(fd, "", AT_FDCWD, path.c_str(), AT_EMPTY_PATH) == 0) return 0;
  // Without CAP_DAC_READ_SEARCH only this way is open. Source: open(2), O_TMPFILE.
  std::array<char, 40> self{};
  std::snprintf(self.data(), self.size(), "/proc/self/fd/%d", fd);
  return ::linkat(AT_FDCWD, self.data(), AT_FDCWD, path.c_str(), AT_SYMLINK_FOLLOW) == 0 ? 0
                                                                                         : errno;
}

/// While this lives, the signals that end the program are ignored: some microseconds.
class SignalsHeld {
 public:
  SignalsHeld() noexcept {
    struct sigaction hold {};
    hold.sa_handler = SIG_IGN;
    for (std::size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &hold, &before_[i]);
  }
  ~SignalsHeld() {
    for (std::size_t i = 0; i < kSignals.size(); ++i)
      ::sigaction(kSignals[i], &before_[i], nullptr);
  }
  SignalsHeld(const SignalsHeld&) = delete;
  SignalsHeld& operator=(const SignalsHeld&) = delete;

 private:
  static constexpr std::array kSignals{SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE};
  std::array<struct sigaction, kSignals.size()> before_{};
};

}  // namespace

Status Output::link_to_target() {
  errno = link_open_file(file_.get(), target_);
  if (errno == EEXIST) return replace_target();  // made by another process meanwhile
  return errno == 0 ? ok_status() : system_error("link file", name_);
}

Status Output::replace_target() {
  // Between the two names a signal would leave the temporary one.
  const SignalsHeld held;
  constexpr int kTriesMax = 100;
  for (int i = 0; temporary_.empty(); ++i) {
    std::string name = temporary_pattern();
    // mkostemp(3) chooses the name; linkat(2) wants one that is free.
    const Descriptor chosen{::mkostemp(name.data(), O_CLOEXEC)};
    if (chosen.get() < 0) return system_error("create file", name_);
    ::unlink(name.c_str());
    errno = link_open_file(file_.get(), name);
    if (errno == 0)
      temporary_ = std::move(name);
    else if (errno != EEXIST || i == kTriesMax)
      return system_error("link file", name_);
  }
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) return system_error("rename file", name_);
  temporary_.clear();
  return ok_status();
}

Status Output::commit() {
  if (target_.empty()) {
    errno = file_.close();
    return errno == 0 ? ok_status() : system_error("close file", name_);
  }
  // The name must not appear before the bytes, also after a power failure.
  if (::fsync(file_.get()) != 0) return system_error("fsync file", name_);
  const bool named = !temporary_.empty();
  if (const Status done = named || replaces_ ? replace_target() : link_to_target(); !done)
    return done;
  errno = file_.close();
  return errno == 0 ? ok_status() : system_error("close file", name_);
}

}  // namespace remora::apps
