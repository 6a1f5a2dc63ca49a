#include "cli/output.h"

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
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "cli/interrupt.h"

namespace remora::apps {

namespace {

bool all_zero(std::span<const std::byte> bytes) noexcept {
  return bytes.front() == std::byte{0} &&
         std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0;
}

}  // namespace

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
  if (!exists && errno != ENOENT) return file_error("open file", path);
  if (exists && !S_ISREG(status.st_mode)) {  // a device or a pipe is written to, not replaced
    output.file_ = Descriptor{::open(path.c_str(), O_WRONLY | O_CLOEXEC)};
    if (output.file_.get() < 0) return file_error("open file", path);
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
    return file_error("open file", path);
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
  if (::access(path.c_str(), W_OK) != 0) return file_error("open file", path);
  char* const real = ::realpath(path.c_str(), nullptr);  // a symbolic link stays a link
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
  // The file system, or the kernel, does not support O_TMPFILE.
  std::string pattern = temporary_pattern();
  file_ = Descriptor{::mkostemp(pattern.data(), O_CLOEXEC)};
  if (file_.get() < 0) return file_error("create file", name_);
  temporary_ = std::move(pattern);
  return ok_status();
}

Status Output::open_part(const struct stat* replaced) {
  const std::string part = part_name();
  file_ = Descriptor{
      ::open(part.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR)};
  if (file_.get() < 0) return file_error("create file", part);
  struct stat made {};
  if (::fstat(file_.get(), &made) != 0) return file_error("stat file", part);
  // Other processes could write to another user's file, or to one with a second name, meanwhile.
  const bool ours =
      made.st_uid == ::geteuid() || (replaced != nullptr && made.st_uid == replaced->st_uid);
  if (!S_ISREG(made.st_mode) || made.st_nlink != 1 || !ours) {
    errno = EEXIST;
    return file_error("not one that an earlier get has left; remove it: open file", part);
  }
  if (::flock(file_.get(), LOCK_EX | LOCK_NB) != 0)
    return Error{Code::kBusy, "another remora get writes it: lock file"}.with_subject(part);
  // The get that had the lock may have given the file its own name since.
  struct stat named {};
  if (::lstat(part.c_str(), &named) != 0 || named.st_ino != made.st_ino ||
      named.st_dev != made.st_dev)
    return Error{Code::kBusy, "another remora get has just completed it: lock file"}.with_subject(
        part);
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
    if (::fstat(file_.get(), &made) != 0) return file_error("stat file", name_);
    // Before the mode is set: a change of the owner clears set-user-ID.
    if ((made.st_uid != replaced->st_uid || made.st_gid != replaced->st_gid) &&
        ::fchown(file_.get(), replaced->st_uid, replaced->st_gid) != 0)
      return file_error("another user's, whose ownership cannot be kept: replace file", name_);
    mode = replaced->st_mode & 07777U;
  }
  if (::fchmod(file_.get(), mode) != 0) return file_error("chmod file", name_);
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
    // A write to a full pipe that a signal ends after a part of the bytes does not return EINTR.
    if (interrupted() != 0) return interruption();
    const ssize_t put = ::write(file_.get(), bytes.data(), bytes.size());
    if (put >= 0)
      bytes = bytes.subspan(static_cast<std::size_t>(put));
    else if (!try_again(file_.get(), POLLOUT))
      return interrupted() != 0 ? interruption() : file_error("write file", name_);
  }
  return ok_status();
}

Status Output::resize(std::uint64_t kept, std::uint64_t size) {
  if (::ftruncate(file_.get(), static_cast<off_t>(kept)) != 0 ||
      ::ftruncate(file_.get(), static_cast<off_t>(size)) != 0)
    return file_error("resize file", name_);
  return ok_status();
}

Status Output::write_at(std::uint64_t at, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t put = ::pwrite(file_.get(), bytes.data(), bytes.size(), static_cast<off_t>(at));
    if (put < 0) {
      if (errno == EINTR) continue;
      return file_error("write file", name_);
    }
    bytes = bytes.subspan(static_cast<std::size_t>(put));
    at += static_cast<std::uint64_t>(put);
  }
  return ok_status();
}

Status Output::write_sparse(std::uint64_t at, std::span<const std::byte> bytes,
                            std::uint64_t& skipped) {
  std::size_t begin = 0;  // begin of the next block to write
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

/// Gives the open file `fd` a name that no file has. Returns errno, as linkat(2).
int link_open_file(int fd, const std::string& path) noexcept {
  if (::linkat(fd, "", AT_FDCWD, path.c_str(), AT_EMPTY_PATH) == 0) return 0;
  // Without CAP_DAC_READ_SEARCH this is the only way. Source: open(2), O_TMPFILE.
  std::array<char, 40> self{};
  std::snprintf(self.data(), self.size(), "/proc/self/fd/%d", fd);
  return ::linkat(AT_FDCWD, self.data(), AT_FDCWD, path.c_str(), AT_SYMLINK_FOLLOW) == 0 ? 0
                                                                                         : errno;
}

/// Blocks the signals that end the program, for some microseconds, while it lives.
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
  return errno == 0 ? ok_status() : file_error("link file", name_);
}

Status Output::replace_target() {
  // A signal between the two names would leave the temporary one.
  const SignalsHeld held;
  constexpr int kTriesMax = 100;
  for (int i = 0; temporary_.empty(); ++i) {
    std::string name = temporary_pattern();
    // mkostemp(3) chooses the name; linkat(2) needs a name that is free.
    const Descriptor chosen{::mkostemp(name.data(), O_CLOEXEC)};
    if (chosen.get() < 0) return file_error("create file", name_);
    ::unlink(name.c_str());
    errno = link_open_file(file_.get(), name);
    if (errno == 0)
      temporary_ = std::move(name);
    else if (errno != EEXIST || i == kTriesMax)
      return file_error("link file", name_);
  }
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) return file_error("rename file", name_);
  temporary_.clear();
  return ok_status();
}

Status Output::commit() {
  if (target_.empty()) {
    errno = file_.close();
    return errno == 0 ? ok_status() : file_error("close file", name_);
  }
  // The name must not appear before the bytes, also after a power failure.
  if (::fsync(file_.get()) != 0) return file_error("fsync file", name_);
  const bool named = !temporary_.empty();
  if (const Status done = named || replaces_ ? replace_target() : link_to_target(); !done)
    return done;
  errno = file_.close();
  return errno == 0 ? ok_status() : file_error("close file", name_);
}

}  // namespace remora::apps
