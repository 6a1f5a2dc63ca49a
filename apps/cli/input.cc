#include "cli/input.h"

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

std::int64_t to_nanoseconds(const timespec& time) noexcept {
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

}  // namespace

Result<Input> Input::open(const std::string& path) {
  Input input;
  input.name_ = path == "-" ? "standard input" : path;
  input.file_ = Descriptor{path == "-" ? STDIN_FILENO : ::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (input.file_.get() < 0) return file_error("open file", path);
  struct stat status {};
  if (::fstat(input.file_.get(), &status) != 0) return file_error("stat file", input.name_);
  if (S_ISDIR(status.st_mode)) {
    errno = EISDIR;
    return file_error("open file", path);
  }
  input.regular_ = S_ISREG(status.st_mode);
  // Files of procfs report size 0 and have bytes to read.
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
      return interrupted() != 0 ? interruption() : file_error("read file", name_);
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
  // No data up to the end: a hole, unless the file has become shorter, which reading notices.
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
  // If the file grows, no more than these bytes are read.
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

}  // namespace remora::apps
