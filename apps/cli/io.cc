#include "cli/io.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
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

std::int64_t to_nanoseconds(const timespec& time) noexcept {
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

/// All of `into` from offset `at`, or what there is before the end.
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
      return system_error("read file", name);
  }
  return filled;
}

bool all_zero(std::span<const std::byte> bytes) noexcept {
  return bytes.front() == std::byte{0} &&
         std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0;
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
    input.begin_ = static_cast<std::uint64_t>(at);
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

Result<std::size_t> Input::read_at(std::uint64_t at, std::span<std::byte> into) const {
  return read_file_at(file_.get(), begin_ + at, into, name_);
}

FileStretch Input::stretch(std::uint64_t at) const noexcept {
  const std::uint64_t size = size_bytes_.value_or(0);
  const auto from = static_cast<off_t>(begin_ + at);
  const auto behind = [&](off_t place) {
    return std::min(size, static_cast<std::uint64_t>(place) - begin_);
  };
  const off_t data = ::lseek(file_.get(), from, SEEK_DATA);
  if (data > from) return {behind(data), true};
  if (data == from) {
    const off_t hole = ::lseek(file_.get(), from, SEEK_HOLE);
    return {hole > from ? behind(hole) : size, false};
  }
  struct stat now {};
  // No data up to the end: a hole, unless the end comes first by now, which reading finds.
  if (errno == ENXIO && ::fstat(file_.get(), &now) == 0 && now.st_size > from)
    return {behind(now.st_size), true};
  return {size, false};
}

void Input::seek_behind(std::uint64_t bytes) noexcept {
  ::lseek(file_.get(), static_cast<off_t>(begin_ + bytes), SEEK_SET);
}

FileIdentity Input::identity() const noexcept {
  struct stat now {};
  if (::fstat(file_.get(), &now) != 0) return {};
  return {now.st_ino, static_cast<std::uint64_t>(now.st_size), to_nanoseconds(now.st_mtim),
          to_nanoseconds(now.st_ctim)};
}

std::string Input::change_since_open(std::uint64_t bytes) const {
  if (!size_bytes_) return {};
  struct stat now {};
  const bool known = ::fstat(file_.get(), &now) == 0;
  // Of a file that grows no more than these are read.
  if (known && bytes == *size_bytes_ && now.st_size > static_cast<off_t>(begin_))
    bytes = std::max(bytes, static_cast<std::uint64_t>(now.st_size) - begin_);
  if (bytes != *size_bytes_)
    return std::string{bytes < *size_bytes_ ? "it became shorter" : "it became longer"} +
           " while it was read: " + std::to_string(*size_bytes_) +
           " bytes by its size when it was opened, " + std::to_string(bytes) +
           " bytes when its end was reached";
  if (!known || to_nanoseconds(now.st_mtim) == to_nanoseconds(modified_)) return {};
  return "it was written to while it was read";
}

Result<Output> Output::open(const std::string& path, Kind kind) {
  Output output;
  output.kind_ = kind;
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
  if (const Status known = output.resolve(path, exists ? &status : nullptr); !known)
    return known.error();
  if (const Status made = output.open_hidden(exists ? &status : nullptr); !made)
    return made.error();
  return output;
}

Status Output::resolve(const std::string& path, const struct stat* there) {
  if (there == nullptr && path.ends_with('/')) {
    errno = EISDIR;
    return system_error("open file", path);
  }
  struct stat link {};
  if (there == nullptr && ::lstat(path.c_str(), &link) == 0)
    return Error{Code::kNotFound,
                 "a symbolic link without a target is neither followed nor replaced; remove it, or "
                 "make its target: open file"}
        .with_subject(path);
  target_ = path;
  replaces_ = there != nullptr;
  if (there == nullptr) return ok_status();
  if (::access(path.c_str(), W_OK) != 0) return system_error("open file", path);
  char* const real = ::realpath(path.c_str(), nullptr);  // a symbolic link stays one
  if (real != nullptr) target_ = real;
  std::free(real);  // NOLINT(cppcoreguidelines-no-malloc): realpath(3) says so
  return ok_status();
}

std::string Output::temporary_pattern() const {
  const std::size_t slash = target_.rfind('/');
  const std::size_t base = slash == std::string::npos ? 0 : slash + 1;
  return target_.substr(0, base) + "." + target_.substr(base).substr(0, NAME_MAX - 16) + ".XXXXXX";
}

std::string Output::part_name() const {
  const std::size_t slash = target_.rfind('/');
  const std::size_t base = slash == std::string::npos ? 0 : slash + 1;
  return target_.substr(0, base) + target_.substr(base).substr(0, NAME_MAX - kPartSuffix.size()) +
         std::string{kPartSuffix};
}

Status Output::open_unnamed() {
  const std::size_t slash = target_.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : target_.substr(0, slash + 1);
  file_ = Descriptor{::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, S_IRUSR | S_IWUSR)};
  if (file_.get() >= 0) return ok_status();
  // A file system, or a kernel, that does not know O_TMPFILE.
  std::string pattern = temporary_pattern();
  file_ = Descriptor{::mkostemp(pattern.data(), O_CLOEXEC)};
  if (file_.get() < 0) return system_error("create file", name_);
  temporary_ = std::move(pattern);
  return ok_status();
}

Status Output::open_part(const struct stat* replaced) {
  const std::string part = part_name();
  file_ = Descriptor{
      ::open(part.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR)};
  if (file_.get() < 0) return system_error("create file", part);
  struct stat made {};
  if (::fstat(file_.get(), &made) != 0) return system_error("stat file", part);
  // Another user's file, or one with a second name, could be written to by others meanwhile.
  const bool ours =
      made.st_uid == ::geteuid() || (replaced != nullptr && made.st_uid == replaced->st_uid);
  if (!S_ISREG(made.st_mode) || made.st_nlink != 1 || !ours) {
    errno = EEXIST;
    return system_error("not one that an earlier get has left; remove it: open file", part);
  }
  if (::flock(file_.get(), LOCK_EX | LOCK_NB) != 0)
    return Error{Code::kBusy, "another remora get writes it: lock file"}.with_subject(part);
  temporary_ = part;
  kept_ = made.st_size > 0;
  return ok_status();
}

Status Output::open_hidden(const struct stat* replaced) {
  const Status opened = kind_ == Kind::kResumable ? open_part(replaced) : open_unnamed();
  if (!opened) return opened;
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
      kind_{other.kind_},
      is_stdout_{other.is_stdout_},
      replaces_{other.replaces_},
      kept_{other.kept_} {}

Output::~Output() {
  if (!temporary_.empty() && !kept_) ::unlink(temporary_.c_str());
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

Status Output::resize(std::uint64_t kept, std::uint64_t size) {
  if (::ftruncate(file_.get(), static_cast<off_t>(kept)) != 0 ||
      ::ftruncate(file_.get(), static_cast<off_t>(size)) != 0)
    return system_error("resize file", name_);
  return ok_status();
}

Status Output::write_at(std::uint64_t at, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t put = ::pwrite(file_.get(), bytes.data(), bytes.size(), static_cast<off_t>(at));
    if (put < 0) {
      if (errno == EINTR) continue;
      return system_error("write file", name_);
    }
    bytes = bytes.subspan(static_cast<std::size_t>(put));
    at += static_cast<std::uint64_t>(put);
  }
  return ok_status();
}

Status Output::write_sparse(std::uint64_t at, std::span<const std::byte> bytes,
                            std::uint64_t& skipped) {
  std::size_t begin = 0;  // of what has to be written
  std::size_t block = 0;
  for (std::size_t i = 0; i < bytes.size(); i += block) {
    block = std::min<std::size_t>(kHoleBlockBytes - (at + i) % kHoleBlockBytes, bytes.size() - i);
    if (!all_zero(bytes.subspan(i, block))) continue;
    if (const Status put = write_at(at + begin, bytes.subspan(begin, i - begin)); !put) return put;
    begin = i + block;
    skipped += block;
  }
  return write_at(at + begin, bytes.subspan(begin));
}

Result<std::size_t> Output::read_at(std::uint64_t at, std::span<std::byte> into) const {
  return read_file_at(file_.get(), at, into, name_);
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
